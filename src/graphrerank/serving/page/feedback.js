// Thumbs of the results: judge a passage as right or wrong, change the judgement, or take it back.
import { call } from "./client.js";
import { el, svg } from "./elements.js";

const RECORDED = 100; // results that the service logs
const RIGHT = "accepted";
const WRONG = "dismissed";
const THUMB = "M2 9h3v9H2zM7 17V9l4-7c1.4 0 2 .9 2 2l-.6 4H17a1.6 1.6 0 0 1 1.5 2l-1.8 6a1.5 1.5 0 0 1-1.5 1z";

/** Judgements of the results of one response. The service knows a result by its id in the ranking `ours`. */
export class Judgements {
  /** `send` posts a body to the service, `say` shows a message, and `changed` is called with a judged passage. */
  constructor(view, { send, say, changed }) {
    const { nodes, scores } = view.rankings.find(({ name }) => name === "ours") ?? { nodes: [], scores: [] };
    this.recorded = new Set(nodes.filter((_, place) => scores[place] !== null).slice(0, RECORDED));
    Object.assign(this, { view, send, say, changed, kinds: new Map(), pending: new Set() });
  }

  kind(node) { return this.kinds.get(node) ?? null; }

  /** Judge a passage. The same judgement again takes it back. A click during a request is ignored. */
  async judge(node, kind) {
    if (this.pending.has(node)) return;
    const before = this.kind(node);
    const after = before === kind ? null : kind;
    const ids = [this.view.nodes[node].feedbackId];
    this.pending.add(node);
    try {
      await this.send({ request_id: this.view.id, ...(before ? { withdrawn: ids } : {}), ...(after ? { [after]: ids } : {}) });
      if (after) this.kinds.set(node, after);
      else this.kinds.delete(node);
      this.say(after ? "Thank you. Your feedback is saved." : "Your feedback is taken back.");
    } catch (error) {
      this.say(`The feedback was not saved: ${error.message}`, true);
    } finally {
      this.pending.delete(node);
    }
    this.changed(node);
  }

  /** Return the two buttons of a passage, or null if the service cannot take feedback on it. */
  buttons(node) {
    if (!this.recorded.has(node)) return null;
    const { title } = this.view.nodes[node];
    const button = (kind, words) => el("button", {
      type: "button", "data-thumb": kind, "data-of": node, "aria-label": `${words}: ${title}`, title: words,
      "aria-pressed": String(this.kind(node) === kind), onclick: () => this.judge(node, kind),
    }, svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: THUMB })));
    return el(
      "span", { class: "thumbs", role: "group", "aria-label": "Feedback" },
      button(RIGHT, "Right passage"), button(WRONG, "Wrong passage"),
    );
  }
}

/** Post feedback to the service. */
export const sendFeedback = (body) => call("/feedback", body);

/** Update the thumbs of a passage wherever they are shown. */
export function pressThumbs(judgements, node) {
  for (const button of document.querySelectorAll(`[data-thumb][data-of="${node}"]`)) {
    button.setAttribute("aria-pressed", String(judgements.kind(node) === button.dataset.thumb));
  }
}
