// What a page can do beyond being read: theme, sortable tables, tabs, copy buttons, charts. Everything works without it, too.
"use strict";

(() => {
  const root = document.documentElement;
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  // Storage is refused in some browsers on file://: the theme then follows the system.
  const memory = {
    get() { try { return localStorage.getItem("msbench-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("msbench-theme", value); } catch { /* not kept */ } },
  };

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : darkSystem.matches);

  function applyTheme() {
    const chosen = memory.get();
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
    for (const button of all(".theme")) button.textContent = `Switch to ${isDark() ? "light" : "dark"}`;
    for (const chart of all(".chart.drawn")) draw(chart);
  }

  function setUpTheme() {
    for (const button of all(".theme")) {
      button.hidden = false;
      button.addEventListener("click", () => {
        root.dataset.theme = isDark() ? "light" : "dark";
        memory.set(root.dataset.theme);
        applyTheme();
      });
    }
    darkSystem.addEventListener("change", applyTheme);
  }

  // ---- tables: a click on a head sorts; rows stay inside their tbody, so groups stay together

  const value = (row, column) => {
    const cell = row.cells[column];
    const key = cell.dataset.v ?? (cell.querySelector("summary") ?? cell).textContent.trim();
    return key === "" || Number.isNaN(Number(key)) ? figure(cell) ?? key : Number(key);
  };

  // What a figure is without its unit, as `23.7 µs` or `1 230 MiB` with an interval below it; a dash is no figure.
  const UNITS = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  function figure(cell) {
    const first = cell.querySelector("small") ? cell.firstChild.textContent : cell.textContent;
    if (first.trim() === "–") return "";
    const [, digits, unit] = /^\s*(\d[\d\u202f]*(?:\.\d+)?)\u202f?([a-zµA-Z]*|×|%)\s*$/.exec(first) ?? [];
    return digits && Number(digits.replace(/\u202f/g, "")) * (UNITS[unit] ?? 1);
  }

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === ""); // what isn't there comes last, either way
    return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  }

  function setUpTables() {
    for (const table of all("table.sortable")) {
      const heads = all("thead tr:last-child th", table);
      heads.forEach((head, column) => {
        if (!head.textContent.trim()) return;
        const button = document.createElement("button");
        button.type = "button";
        button.append(...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => {
          const down = head.getAttribute("aria-sort") === (head.classList.contains("n") ? "descending" : "ascending")
            ? !head.classList.contains("n") : head.classList.contains("n");
          heads.forEach((other) => other.removeAttribute("aria-sort"));
          head.setAttribute("aria-sort", down ? "descending" : "ascending");
          for (const body of table.tBodies) {
            const rows = [...body.rows].filter((row) => !row.classList.contains("group"));
            rows.sort((x, y) => {
              const a = value(x, column), b = value(y, column);
              return a === "" || b === "" ? compare(a, b) : (down ? -1 : 1) * compare(a, b);
            });
            body.append(...rows);
          }
        });
      });
    }
  }

  // ---- tabs: the precisions of an operator

  function setUpTabs() {
    for (const list of all(".tabs")) {
      const tabs = all("a", list);
      const panels = tabs.map((tab) => document.getElementById(tab.hash.slice(1)));
      list.setAttribute("role", "tablist");
      const select = (index) => tabs.forEach((tab, i) => {
        tab.setAttribute("aria-selected", String(i === index));
        tab.tabIndex = i === index ? 0 : -1;
        panels[i].hidden = i !== index;
      });
      const fromHash = () => {
        const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
        return target ? panels.findIndex((panel) => panel.contains(target)) : -1;
      };
      tabs.forEach((tab, i) => {
        tab.setAttribute("role", "tab");
        tab.setAttribute("aria-controls", panels[i].id);
        panels[i].setAttribute("role", "tabpanel");
        tab.addEventListener("click", (event) => {
          event.preventDefault();
          history.replaceState(null, "", tab.hash);
          select(i);
        });
        tab.addEventListener("keydown", (event) => {
          const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
          if (step) { const next = (i + step + tabs.length) % tabs.length; tabs[next].click(); tabs[next].focus(); }
        });
      });
      select(Math.max(0, fromHash()));
      addEventListener("hashchange", () => { const index = fromHash(); if (index >= 0) select(index); });
    }
  }

  // ---- code

  function setUpCode() {
    for (const button of all("button[data-copy]")) {
      const text = () => {
        const from = document.getElementById(button.dataset.copy);
        const lines = all("code > span", from);
        return lines.length ? lines.map((line) => line.textContent).join("\n") + "\n" : from.textContent;
      };
      button.hidden = false;
      button.addEventListener("click", async () => {
        const before = button.textContent;
        button.textContent = (await copy(text())) ? "Copied" : "Press Ctrl+C";
        setTimeout(() => { button.textContent = before; }, 1600);
      });
    }
    for (const button of all("button[data-expand]")) {
      const source = button.closest(".source");
      const pre = source.querySelector("pre");
      if (pre.scrollHeight <= pre.clientHeight + 4) continue;
      button.hidden = false;
      button.setAttribute("aria-expanded", "false");
      button.addEventListener("click", () => {
        const open = source.classList.toggle("open");
        button.textContent = open ? "Collapse" : "Expand";
        button.setAttribute("aria-expanded", String(open));
      });
    }
  }

  async function copy(text) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* file:// may refuse: the old way */ }
    const area = Object.assign(document.createElement("textarea"), { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }

  // ---- charts: the page holds each figure's JSON, in which what a trace shares with an earlier one is that one's number; a trace's
  // `meta` names its series, and the colours are the style sheet's

  function draw(chart) {
    const probe = chart.querySelector(".probe");
    const colour = (name) => { // resolves light-dark(), which plotly can't read
      probe.style.color = `var(--${name}, var(--ink))`;
      return getComputedStyle(probe).color;
    };
    const figure = JSON.parse(chart.querySelector("script").textContent);
    for (const trace of figure.data) {
      for (const name of ["x", "customdata"]) if (typeof trace[name] === "number") trace[name] = figure.data[trace[name]][name];
      const own = colour(`series-${trace.meta}`);
      trace.marker = { ...trace.marker, color: own, line: { color: colour("raised"), width: 1, ...trace.marker?.line } };
      trace.line = { ...trace.line, color: own };
      for (const bars of [trace.error_x, trace.error_y]) if (bars) Object.assign(bars, { color: own, thickness: 1.2, width: 3 });
      trace.textfont = { color: colour("soft"), ...trace.textfont };
      trace.hoverlabel = { bgcolor: colour("raised"), bordercolor: own, font: { color: colour("ink") } };
    }
    const layout = figure.layout;
    const narrow = chart.clientWidth < 520;
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
      font: { family: getComputedStyle(document.body).fontFamily, size: narrow ? 11 : 12.5, color: colour("soft") },
      height: chart.clientHeight, margin: { l: 8, r: 16, t: 8, b: 8 }, hovermode: "closest",
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", xanchor: "left", ...layout.legend },
    });
    for (const axis of [layout.xaxis ??= {}, layout.yaxis ??= {}]) {
      Object.assign(axis, { automargin: true, showline: false, zeroline: false, fixedrange: true, gridcolor: colour("line"), linecolor: colour("line-strong"), zerolinecolor: colour("line-strong"), tickcolor: colour("line-strong") });
      if (axis.title) axis.title.font = { size: layout.font.size, color: colour("faint") };
    }
    for (const note of layout.annotations ?? []) note.font = { color: colour("faint"), size: narrow ? 10 : 11.5 };
    for (const shape of layout.shapes ?? []) shape.line = { ...shape.line, color: colour("line-strong") };
    chart.classList.add("drawn");
    Plotly.react(chart.querySelector(".plot"), figure.data, layout, { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: "reset" });
  }

  function setUpCharts() {
    if (typeof Plotly === "undefined") return;
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue; // a chart in a hidden tab or far below is drawn when it is reached
        seen.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "600px" });
    for (const chart of all(".chart:not(.fixed)")) seen.observe(chart);
  }

  applyTheme();
  addEventListener("DOMContentLoaded", () => {
    setUpTheme();
    applyTheme();
    setUpTables();
    setUpTabs();
    setUpCode();
    setUpCharts();
    // What the address names may have stood in a tab that was hidden until now.
    if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  });
})();
