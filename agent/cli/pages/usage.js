// SPDX-License-Identifier: MIT
// Search and sort the tables of figures. Each tbody is an account with its users.
"use strict";
for (const table of document.querySelectorAll("table.figures")) {
  const groups = [...table.tBodies];
  if (groups.length < 2) continue;

  const search = document.createElement("input");
  const found = document.createElement("output");
  search.type = "search";
  search.placeholder = search.ariaLabel = "Search names, projects, accounts";
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/);
    for (const group of groups) {
      const names = [...group.rows].map((row) => row.cells[0].textContent).join(" ").toLowerCase();
      group.hidden = !words.every((word) => names.includes(word));
    }
    found.textContent = `${groups.filter((group) => !group.hidden).length} of ${groups.length}`;
  });
  const line = document.createElement("p");
  line.className = "search";
  line.append(search, found);
  table.parentElement.before(line);

  // An amount, a name or a day in lower case; null for what is unknown or not there, which comes last.
  const key = (group, column) => {
    const text = group.rows[0].cells[column].textContent.toLowerCase();
    if (text === "" || text === "?") return null;
    if (column === 0 || /^\d{4}-|^used/.test(text)) return text;
    return text.startsWith("over") ? Infinity : parseFloat(text.replace(/[,>]/g, ""));
  };
  const heads = [...table.tHead.rows[0].cells];
  for (const [column, head] of heads.entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.ariaSort;
      const direction = (before ? before === "descending" : column === 0) ? 1 : -1;
      for (const each of heads) each.ariaSort = null;
      head.ariaSort = direction > 0 ? "ascending" : "descending";
      const keyed = groups.map((group) => [key(group, column), group]);
      keyed.sort(([a], [b]) => (a === null) - (b === null) || direction * (a < b ? -1 : a > b ? 1 : 0));
      table.append(...keyed.map(([, group]) => group));
    });
  }
}
