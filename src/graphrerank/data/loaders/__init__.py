"""Loaders of data sets that are not plain folders: public data sets by name, merged data sets, and ATT&CK."""
