"""English words that name nothing, or nothing by themselves."""


def _words(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


ANAPHORIC = _words(  # before a noun that was named before, or is not named
    """
    any each every her his its my no our such that their these this those what which whose your
    """
)
WEAK = _words(  # adjectives and adverbs that say nothing specific about the next word
    """
    additional available best better certain clear common consistent corresponding current different distinct due
    entire existing few final first following further general given good great greater high higher important
    increased independent individual initial interesting key known large larger last late later latter least less
    like likely little low lower main major many more most much multiple necessary new next novel numerous
    observed old only other overall own particular possible potential present previous previously prior recent
    recently related relative relevant remaining respective same second several significant significantly similar
    similarly single small so-called special specific strong subsequent such sufficient third total typical unique
    unknown useful usual various very whole wide widely
    """
)
VAGUE = _words(  # generic nouns that remain so after adjectives: "an important role"
    """
    ability advance advantage aim amount analysis approach aspect assessment assumption attempt attention basis
    change characteristic circumstance comparison conclusion consequence contribution criterion data datum
    decrease detail difference difficulty direction discussion effect estimate evidence example experience
    explanation extent fact factor fashion feature finding focus form goal idea implication importance
    improvement increase indication information insight instance interest issue item kind knowledge level
    limitation lot magnitude majority manner matter mean meaning method minority need note notion number
    objective observation opportunity option outcome part phenomenon possibility potential presence principle
    problem procedure process property proportion purpose quantity question range rate reason reduction report
    requirement resource respect result review role scope sense series set shape side significance similarity
    situation size step strategy study subset success suggestion sum summary support task technique tendency
    thing time type understanding use utility value variation variety view way
    """
)
GENERIC = (VAGUE - {"assumption"}) | _words(  # nouns that name nothing by themselves
    """
    absence access account act action activity addition age answer application area argument article author
    average band base baseline beginning behavior behaviour benefit body book brother capability capacity case
    category cause cell challenge chance character child choice city class club combination component concept
    concern condition context contrast control copy correlation country couple course date daughter day death
    decade decision definition degree demand description design development dimension discovery disease
    distinction distribution drug duration effort element end episode era evaluation event exception existence
    experiment expression failure family father field figure film following format formation frequency function
    future game gene generation ground group growth half hand head help history home host hour human husband
    hypothesis identification impact incidence inclusion individual influence interaction interval intervention
    introduction investigation journal lack layer length life limit line link list literature loss man measure
    measurement mechanism member minute mode model modification molecule month mother movement multitude name
    nature object occasion occurrence one onset operation order organism organization origin output overview
    paper paradigm parameter parent participant participation passage past path patient pattern people percent
    percentage performance period person perspective phase place plan play player point policy population
    position power practice present pressure product production program progress project proposal prospect
    protein quality ratio recommendation record reference regard region relation relationship release
    reliability research response responsibility rest right rise risk rule sample scale scenario scene score
    season second section selection sequence setting share show sister site solution son song sort source space
    species specificity stage standard start state statement status story strength structure subject survey
    system target team technology term test theme theory therapy thought title today tool top topic total town
    treatment trend trial turn unit user variable variant version vitro vivo week widow wife woman word work
    world year
    """
)
MONTHS = _words(  # months and days of the week
    """
    january february march april may june july august september october november december monday tuesday wednesday
    thursday friday saturday sunday
    """
)
HEADINGS = _words(  # of structured abstracts, which run into the next sentence
    """
    AIM AIMS BACKGROUND CONCLUSION CONCLUSIONS CONTEXT DESIGN DISCUSSION FINDINGS INTERPRETATION INTRODUCTION
    MATERIALS MEASUREMENTS METHODS OBJECTIVE OBJECTIVES PARTICIPANTS PATIENTS PURPOSE RATIONALE RESULTS SETTING
    SIGNIFICANCE SUMMARY
    """
)
