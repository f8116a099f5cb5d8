"""Names of the choices for callers who do not see the whole corpus."""

#: Passages whose word frequencies and derived edges a search uses: those that are visible to the caller, or all.
STATISTICS = ("visible", "global")
