"use strict";
// A click on a column's name sorts its table: numbers from the highest, texts from A; again for the other way around.
const byText = new Intl.Collator("en", { numeric: true }).compare;

function keyOf(row, column, kind) {
  const cell = row.cells[column];
  if (kind === "text") return cell.textContent.trim();
  return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
}

function sortBy(table, head, column) {
  const descending = head.ariaSort ? head.ariaSort === "ascending" : head.dataset.kind === "number";
  const rows = Array.from(table.tBodies[0].rows, (row) => [keyOf(row, column, head.dataset.kind), row]);
  const sign = descending ? -1 : 1;
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null); // what is not known comes last
    return sign * (typeof a === "string" ? byText(a, b) : a - b);
  });
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => sortBy(table, head, column));
  });
}
