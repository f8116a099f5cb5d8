// Page for judging: ask a question, click the relevant passages, save. Texts of passages are never read as HTML.
const GOAL = 15;
const byId = (id) => document.getElementById(id);
const state = { token: "", questions: [], passages: new Map(), relevant: new Set(), queryId: null, text: "" };

async function call(method, path, body) {
  const headers = { "x-judge-token": state.token };
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit" });
  } catch {
    throw new Error("The command graphrerank judge does not run any more.");
  }
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.message || `The service returned status ${answer.status}.`);
  return content;
}

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, setting] of Object.entries(attributes)) made.setAttribute(name, setting);
  return made;
}

function say(text, isError = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("error", isError);
}

async function guarded(work, waiting = "") {
  say(waiting);
  try {
    await work();
    if (waiting) say("");
  } catch (error) {
    say(error.message, true);
  }
}

function showQuestions() {
  const judged = state.questions.filter((question) => question.relevant.length);
  const rest = GOAL - judged.length;
  byId("progress").textContent = rest > 0
    ? `${judged.length} judged. About ${rest} more for a first answer of graphrerank doctor.`
    : `${judged.length} judged. graphrerank doctor can now tell more.`;
  byId("questions").replaceChildren(...state.questions.map((question) => {
    const item = element("li", "");
    const count = question.relevant.length;
    const open = element("button", `${question.text} (${count ? `${count} relevant` : "not judged"})`, { type: "button", class: "open" });
    open.addEventListener("click", () => guarded(() => openQuestion(question), "Searching…"));
    const remove = element("button", "×", { type: "button", class: "quiet remove", "aria-label": `Remove: ${question.text}` });
    remove.addEventListener("click", () => guarded(async () => {
      await call("DELETE", `/questions/${encodeURIComponent(question.query_id)}`);
      await load();
    }));
    item.append(open, remove);
    return item;
  }));
}

function showPassages() {
  byId("result").hidden = state.passages.size === 0;
  byId("passages").replaceChildren(...[...state.passages.values()].map((passage) => {
    const item = element("li", "");
    const button = element("button", "", { type: "button", "aria-pressed": String(state.relevant.has(passage.passage_id)), "data-id": passage.passage_id });
    button.append(element("strong", passage.title || passage.passage_id), element("span", passage.text));
    button.addEventListener("click", () => {
      const id = passage.passage_id;
      if (!state.relevant.delete(id)) state.relevant.add(id);
      button.setAttribute("aria-pressed", String(state.relevant.has(id)));
      showChosen();
    });
    item.append(button);
    return item;
  }));
  for (const item of byId("passages").children) addExpander(item);
  showChosen();
}

/** Add a button that shows the whole text, if the passage is too long. A text that scrolls needs a mouse. */
function addExpander(item) {
  const text = item.querySelector("span");
  if (text.scrollHeight <= text.clientHeight) return;
  const expander = element("button", "Whole text", { type: "button", class: "quiet whole", "aria-expanded": "false" });
  expander.addEventListener("click", () => {
    const isWhole = item.classList.toggle("whole");
    expander.textContent = isWhole ? "Less text" : "Whole text";
    expander.setAttribute("aria-expanded", String(isWhole));
  });
  item.append(expander);
}

function showChosen() {
  byId("chosen").textContent = `${state.relevant.size} of ${state.passages.size} passages are relevant`;
  byId("save").disabled = state.relevant.size === 0;
}

function add(passages) {
  for (const passage of passages) if (!state.passages.has(passage.passage_id)) state.passages.set(passage.passage_id, passage);
}

function begin(text, queryId, relevant = []) {
  Object.assign(state, { text, queryId, passages: new Map(), relevant: new Set(relevant) });
  byId("question").value = text;
}

async function openQuestion(question) {
  begin(question.text, question.query_id, question.relevant);
  add((await call("GET", `/questions/${encodeURIComponent(question.query_id)}`)).passages);
  add((await call("POST", "/search", { text: question.text })).passages);
  showPassages();
}

async function load() {
  const content = await call("GET", "/state");
  state.token = content.token;
  state.questions = content.questions;
  byId("name").textContent = content.name;
  showQuestions();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("question").value.trim();
  guarded(async () => {
    const known = state.questions.find((question) => question.text === text);
    if (known) return openQuestion(known);
    // an edited text of an opened question keeps its id and its marks
    if (state.queryId === null) begin(text, null);
    else state.text = text;
    add((await call("POST", "/search", { text })).passages);
    showPassages();
  }, "Searching…");
});

byId("more").addEventListener("submit", (event) => {
  event.preventDefault();
  const before = state.passages.size;
  guarded(async () => {
    add((await call("POST", "/search", { text: byId("words").value.trim() })).passages);
    showPassages();
    say(`${state.passages.size - before} more passages, at the end of the list`);
  });
});

byId("save").addEventListener("click", () => guarded(async () => {
  const body = { text: state.text, relevant: [...state.relevant], shown: [...state.passages.keys()], query_id: state.queryId };
  await call("POST", "/questions", body);
  clear();
  await load();
  say("Saved.");
}));

byId("cancel").addEventListener("click", () => { clear(); say(""); });

function clear() {
  begin("", null);
  byId("words").value = "";
  showPassages();
  byId("question").focus();
}

guarded(load);
