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
GENERIC = _words(  # nouns that name nothing by themselves
    """
    ability absence access account act action activity addition advance advantage age aim amount analysis answer
    application approach area argument article aspect assessment attempt attention author average band base
    baseline basis beginning behavior behaviour benefit body book brother capability capacity case category cause
    cell challenge chance change character characteristic child choice circumstance city class club combination
    comparison component concept concern conclusion condition consequence context contrast contribution control
    copy correlation country couple course criterion data date datum daughter day death decade decision decrease
    definition degree demand description design detail development difference difficulty dimension direction
    discovery discussion disease distinction distribution drug duration effect effort element end episode era
    estimate evaluation event evidence example exception existence experience experiment explanation expression
    extent fact factor failure family fashion father feature field figure film finding focus following form format
    formation frequency function future game gene generation goal ground group growth half hand head help history
    home host hour human husband hypothesis idea identification impact implication importance improvement
    incidence inclusion increase indication individual influence information insight instance interaction interest
    interval intervention introduction investigation issue item journal kind knowledge lack layer length level
    life limit limitation line link list literature loss lot magnitude majority man manner matter mean meaning
    measure measurement mechanism member method minority minute mode model modification molecule month mother
    movement multitude name nature need note notion number object objective observation occasion occurrence one
    onset operation opportunity option order organism organization origin outcome output overview paper paradigm
    parameter parent part participant participation passage past path patient pattern people percent percentage
    performance period person perspective phase phenomenon place plan play player point policy population position
    possibility potential power practice presence present pressure principle problem procedure process product
    production program progress project property proportion proposal prospect protein purpose quality quantity
    question range rate ratio reason recommendation record reduction reference regard region relation relationship
    release reliability report requirement research resource respect response responsibility rest result review
    right rise risk role rule sample scale scenario scene scope score season second section selection sense
    sequence series set setting shape share show side significance similarity sister site situation size solution
    son song sort source space species specificity stage standard start state statement status step story strategy
    strength structure study subject subset success suggestion sum summary support survey system target task team
    technique technology tendency term test theme theory therapy thing thought time title today tool top topic
    total town treatment trend trial turn type understanding unit use user utility value variable variant
    variation variety version view vitro vivo way week widow wife woman word work world year
    """
)
VAGUE = _words(  # generic nouns that remain so after adjectives: "an important role"
    """
    ability advance advantage aim amount analysis approach aspect assessment assumption attempt attention basis
    change characteristic circumstance comparison conclusion consequence contribution criterion data datum
    decrease detail difference difficulty direction discussion effect estimate evidence example experience
    explanation extent fact factor fashion feature finding focus form goal idea implication importance improvement
    increase indication information insight instance interest issue item kind knowledge level limitation lot
    magnitude majority manner matter mean meaning method minority need note notion number objective observation
    opportunity option outcome part phenomenon possibility potential presence principle problem procedure process
    property proportion purpose quantity question range rate reason reduction report requirement resource respect
    result review role scope sense series set shape side significance similarity situation size step strategy
    study subset success suggestion sum summary support task technique tendency thing time type understanding use
    utility value variation variety view way
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
