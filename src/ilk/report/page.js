"use strict";
(() => {
  const figures = [...document.querySelectorAll("figure[data-spec]")];
  const embedding = {
    renderer: "svg",
    ast: true, // expressions are interpreted: the page's policy forbids eval
    actions: { export: true, source: false, compiled: false, editor: false },
    loader: { load: () => Promise.reject(new Error("nothing is loaded")) },
  };
  let printing = false;

  // A chart of one view is as wide as its place, a map is square; of views side by side each has its share.
  function sized(spec, width) {
    const { square, shares, room } = spec.usermeta ?? {};
    if (square) return { ...spec, width: Math.min(width, square), height: Math.min(width, square) + 40 };
    if (!shares) return { ...spec, width };
    const views = spec.hconcat.map((view, k) => ({ ...view, width: Math.max(Math.round((width - room) * shares[k]), 60) }));
    return { ...spec, hconcat: views };
  }

  async function draw(figure) {
    const place = figure.querySelector(".chart");
    const width = Math.floor(place.clientWidth);
    if (figure.drawnAt && Math.abs(figure.drawnAt - width) < 4) return;
    figure.drawnAt = width;
    const spec = JSON.parse(document.getElementById(figure.dataset.spec).textContent);
    try {
      const { view } = await vegaEmbed(place, sized(spec, width), embedding);
      figure.view?.finalize();
      figure.view = view;
      figure.dataset.drawn = "yes";
    } catch (error) {
      place.textContent = "This chart could not be drawn: " + error.message;
      console.error(error);
    }
  }

  async function drawAll() {
    if (printing) return;
    for (const figure of figures) {
      await draw(figure);
      await new Promise((next) => setTimeout(next)); // let the reader scroll meanwhile
    }
    document.documentElement.dataset.drawn = String(figures.filter((figure) => figure.dataset.drawn).length);
  }

  function sortBy(button) {
    const header = button.closest("th");
    const table = header.closest("table");
    const column = [...header.parentNode.children].indexOf(header);
    const up = header.getAttribute("aria-sort") === "descending" || (!header.hasAttribute("aria-sort") && column === 0);
    const value = (row) => {
      const cell = row.children[column];
      return cell.dataset.value === undefined ? cell.textContent : cell.dataset.value === "" ? NaN : Number(cell.dataset.value);
    };
    const order = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // what is missing stays last
      const before = typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
      return up ? before : -before;
    };
    for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", up ? "ascending" : "descending");
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort(order));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (button) sortBy(button);
  });
  window.addEventListener("beforeprint", () => { printing = true; });
  window.addEventListener("afterprint", () => { printing = false; });
  let waiting;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 200);
  });
  drawAll();
})();
