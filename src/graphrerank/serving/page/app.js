// Entry point of the page: sends a question to the service and shows the response in the lists, graph and details.
import { call, inspect, Refused, rerank, useKey } from "./client.js";
import { drawDetail, drawStages } from "./detail.js";
import { byId, el, press } from "./elements.js";
import { EXAMPLES, pasted } from "./examples.js";
import { Judgements, pressThumbs, sendFeedback } from "./feedback.js";
import { Graph } from "./graph.js";
import { drawLists, mark, resetLists } from "./lists.js";
import { readPassages } from "./passages.js";
import { curl, python } from "./snippets.js";

const state = { info: null, mode: "passages", view: null, node: null, left: 0, right: 1, code: "curl", hasKey: false, message: null, asked: 0 };
const SHOWN_MS = 4000; // time for which a confirmation is shown
const graph = new Graph(byId("graph"), select);

function say(text, isError = false) {
  byId("status").textContent = text;
  byId("status").classList.toggle("error", isError);
}

/** Ask for a key or token, and return whether the user entered one. */
async function unlock() {
  const dialog = byId("locked");
  byId("key").value = "";
  dialog.showModal();
  await new Promise((done) => { dialog.addEventListener("close", done, { once: true }); });
  if (!byId("key").value) return false;
  useKey(byId("key").value);
  state.hasKey = true;
  return true;
}

/** Call `ask`. If the service requires a key, ask for it and try again. */
async function withKey(ask) {
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 401 || !(await unlock())) throw error;
    }
  }
}

function readFilter() {
  const text = byId("filter").value.trim();
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    throw new Error('The filter is not valid JSON, such as {"lang": "de"}.');
  }
}

async function start() {
  setMode("passages");
  try {
    state.info = (await withKey(() => call("/info"))).content;
  } catch (error) {
    say(error.message, true);
    return;
  }
  const { page } = state.info;
  byId("model").textContent = `${page.name}${page.searches ? `, over ${page.corpus || "a corpus"}` : ""}`;
  byId("modes").hidden = !page.searches;
  setMode(page.searches ? "index" : "passages");
  byId("query").focus({ preventScroll: true });
}

function setMode(mode) {
  state.mode = mode;
  const buttons = byId("modes").querySelectorAll("button");
  press(buttons, Array.from(buttons).find((button) => button.dataset.mode === mode));
  byId("own").hidden = mode === "index";
  byId("narrow").hidden = mode !== "index";
  const questions = state.info?.page.questions ?? [];
  const chips = mode === "index"
    ? questions.map((question) => el("button", { type: "button", onclick: () => { byId("query").value = question; ask(); } }, question))
    : EXAMPLES.map((example) => el("button", {
      type: "button", onclick: () => { byId("query").value = example.query; byId("passages").value = pasted(example); ask(); },
    }, example.name));
  byId("examples").replaceChildren(...(chips.length ? [el("span", { class: "soft" }, "Try"), ...chips] : []));
}

async function ask() {
  const query = byId("query").value.trim();
  const number = ++state.asked;
  say("Ranking…");
  try {
    const given = state.mode === "index" ? null : readPassages(byId("passages").value);
    const filter = given ? null : readFilter();
    const view = await withKey(() => (given ? rerank(query, given, state.info.server.limits) : inspect(query, filter, { record: takesFeedback() })));
    if (number !== state.asked) return; // the user has asked another question in the meantime
    show(view);
    const joined = `${view.edges.length.toLocaleString("en")} ${view.edges.length === 1 ? "edge" : "edges"}`;
    say(`${view.nodes.length} passages, ${joined} among them.`);
  } catch (error) {
    if (number === state.asked) say(error.message, true);
  }
}

let hiding = 0;

/** Show what became of a judgement, wherever the user has scrolled to. An error stays until the next message. */
function tell(text, isError = false) {
  clearTimeout(hiding);
  byId("feedback").textContent = text;
  byId("feedback").classList.toggle("error", isError);
  if (!isError) hiding = setTimeout(() => { byId("feedback").textContent = ""; }, SHOWN_MS);
}

const takesFeedback = () => state.info?.page.feedback ?? false;

/** Return the judgements of a new response, or null if the service takes no feedback. */
function judgementsOf(view) {
  if (!takesFeedback()) return null;
  const judgements = new Judgements(view, {
    send: (body) => withKey(() => sendFeedback(body)), say: tell, changed: (node) => pressThumbs(judgements, node),
  });
  return judgements;
}

function show(view) {
  tell("");
  view.judgements = judgementsOf(view);
  Object.assign(state, { view, node: null, message: null, left: 0, right: Math.max(0, view.rankings.findIndex(({ name }) => name === "ours")) });
  if (state.left === state.right) state.left = 0;
  resetLists();
  byId("results").hidden = false;
  for (const side of ["left", "right"]) {
    const options = view.rankings.map(({ name }, index) => el("option", { value: index }, name));
    byId(side).replaceChildren(...options);
    byId(side).value = String(state[side]);
    byId(side).parentElement.hidden = view.rankings.length < 3;
  }
  graph.show(view, view.rankings[state.right]);
  compare();
  drawStages(view);
  drawCode();
  drawDetail(view, null);
}

function compare() {
  const { view, left, right } = state;
  drawLists(view, left, right, select);
  for (const button of byId("sides").children) button.textContent = view.rankings[state[button.dataset.side]].name;
  mark(state.node);
}

async function select(node) {
  const { view } = state;
  state.node = node;
  mark(node);
  graph.choose(node);
  detail();
  if (view.isExplained || state.mode !== "index" || state.message) return;
  try {
    state.explaining ??= withKey(() => inspect(view.query, view.filter, { explain: true }));
    const explained = await state.explaining;
    if (state.view !== view) return;
    const byName = new Map(explained.nodes.map(({ id, explanation }) => [id, explanation]));
    const place = explained.nodes.map(({ id }) => view.nodes.findIndex((own) => own.id === id));
    for (const own of view.nodes) {
      const explanation = byName.get(own.id) ?? null;
      own.explanation = explanation && {
        ...explanation, edges: explanation.edges.map((edge) => ({ ...edge, edge: edge.edge.map((end) => place[end]) })).filter(({ edge }) => !edge.includes(-1)),
      };
    }
    view.isExplained = true;
  } catch (error) {
    if (state.view === view) state.message = error.message;
  } finally {
    state.explaining = null;
  }
  if (state.view === view) detail();
}

function detail() {
  drawDetail(state.view, state.node, state.left, state.right, state, select);
}

function drawCode() {
  const write = state.code === "curl" ? curl : python;
  byId("code").textContent = write(location.origin, state.view.request, state.hasKey);
}

byId("unlock").addEventListener("click", unlock);
byId("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
byId("modes").addEventListener("click", ({ target }) => { if (target.dataset.mode) setMode(target.dataset.mode); });
byId("sides").addEventListener("click", ({ target }) => {
  if (!target.dataset.side) return;
  press(byId("sides").children, target);
  byId("lists").dataset.side = target.dataset.side;
});
for (const side of ["left", "right"]) {
  byId(side).addEventListener("change", ({ target }) => {
    state[side] = Number(target.value);
    if (side === "right") graph.rank(state.view.rankings[state.right]);
    compare();
    detail();
  });
}
for (const button of document.querySelectorAll("[data-zoom]")) {
  button.addEventListener("click", () => graph.zoom({ in: 1.4, out: 1 / 1.4, fit: 0 }[button.dataset.zoom]));
}
for (const button of document.querySelectorAll("[data-code]")) {
  button.addEventListener("click", () => {
    state.code = button.dataset.code;
    press(document.querySelectorAll("[data-code]"), button);
    drawCode();
  });
}
byId("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(byId("code").textContent);
    byId("copy").textContent = "Copied";
  } catch { // The clipboard needs a secure context. Without it, select the text, so that a key press copies it.
    getSelection().selectAllChildren(byId("code"));
    byId("copy").textContent = "Press Ctrl+C";
  }
  setTimeout(() => { byId("copy").textContent = "Copy"; }, 2000);
});
byId("lists").addEventListener("pointerover", ({ target }) => {
  const item = target.closest("[data-node]");
  if (item) graph.hover(Number(item.dataset.node));
});
byId("lists").addEventListener("pointerleave", () => graph.hover(null));

start();
