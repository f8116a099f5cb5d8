// Three examples that need no corpus: films, the tables of a database, and ATT&CK.
const FILMS = {
  name: "Films",
  query: "Where is the director of the film Solaris buried?",
  passages: [
    "Solaris. A 1972 Soviet science fiction film based on the novel by Stanisław Lem, directed by Andrei Tarkovsky.",
    "Andrei Tarkovsky. A Russian film director (1932–1986). He died in Paris and lies in the cemetery of Sainte-Geneviève-des-Bois.",
    "Solaris (novel). A 1961 novel by Stanisław Lem about an ocean that covers a planet.",
    "Stanisław Lem. A Polish writer of science fiction, buried in Kraków.",
    "Stalker. A 1979 film directed by Andrei Tarkovsky with a script by the Strugatsky brothers.",
    "Solar eclipse. The Moon passes between Sun and Earth and hides the film of gas around the Sun.",
    "Steven Soderbergh. An American director, who filmed the novel again in 2002.",
    "Kraków. A city in the south of Poland.",
    "Sainte-Geneviève-des-Bois. A commune south of Paris with a Russian cemetery.",
    "Paris. The capital of France.",
    "Buried. A 2010 film in which a man is buried in a coffin; directed by Rodrigo Cortés.",
    "Film director. A person who directs the making of a film.",
  ].join("\n\n"),
};

const TABLES = {
  name: "Tables of a database",
  query: "Which stadiums held a concert of a singer from France in 2014?",
  passages: {
    documents: [
      "singer (singer_id, name, country, age, song_name)",
      "singer_in_concert (concert_id, singer_id)",
      "concert (concert_id, concert_name, theme, stadium_id, year)",
      "stadium (stadium_id, location, name, capacity)",
      "country (code, name, continent, capital)",
      "orchestra (orchestra_id, conductor_id, record_company, year_of_founding)",
      "performance (performance_id, orchestra_id, type, date)",
      "show (show_id, performance_id, if_first_show, attendance)",
      "conductor (conductor_id, name, age, nationality)",
      "team (team_id, name, home_stadium_id, league)",
    ],
    scores: [0.61, 0.38, 0.55, 0.52, 0.47, 0.3, 0.33, 0.31, 0.28, 0.42],
    edges: [
      [0, 1, 1, "foreign_key"], [1, 2, 1, "foreign_key"], [2, 3, 1, "foreign_key"], [3, 9, 1, "foreign_key"],
      [5, 6, 1, "foreign_key"], [6, 7, 1, "foreign_key"], [5, 8, 1, "foreign_key"],
    ],
  },
};

const ATTACK = {
  name: "ATT&CK",
  query: "Which mitigations prevent malware that spreads through infected USB sticks?",
  passages: {
    documents: [
      "Replication Through Removable Media. Adversaries may move onto systems by copying malware to removable media.",
      "Disable or Remove Feature or Program. Remove or deny access to unnecessary and potentially vulnerable software.",
      "Limit Hardware Installation. Prevent unauthorized users or groups from installing or using hardware, such as USB devices.",
      "Behavior Prevention on Endpoint. Use capabilities to prevent suspicious behavior patterns from occurring.",
      "Phishing. Adversaries may send messages to gain access to victim systems.",
      "USBStealer. Malware that is used to extract information from air-gapped networks.",
      "Crimson. A remote access trojan for Windows that infects removable media.",
      "User Training. Train users to be aware of access or manipulation attempts by an adversary.",
      "Hardware Additions. Adversaries may introduce computer accessories into a system.",
      "Stuxnet. The first publicly reported malware to target industrial control systems; it spread by USB sticks.",
    ],
    edges: [
      [0, 1, 1, "reference"], [0, 2, 1, "reference"], [0, 3, 1, "reference"], [0, 5, 1, "reference"], [0, 6, 1, "reference"],
      [0, 9, 1, "reference"], [4, 7, 1, "reference"], [2, 8, 1, "reference"],
    ],
  },
};

export const EXAMPLES = [FILMS, TABLES, ATTACK];

/** Return the passages of an example as text for the input field. */
export function pasted({ passages }) {
  if (typeof passages === "string") return passages;
  const lists = Object.entries(passages).map(([name, entries]) => {
    const isShort = name !== "documents" && name !== "edges";
    const listed = isShort ? ` ${entries.join(", ")} ` : `\n  ${entries.map((entry) => JSON.stringify(entry)).join(",\n  ")}\n `;
    return ` "${name}": [${listed}]`;
  });
  return `{\n${lists.join(",\n")}\n}`;
}
