// Behavior of the console's pages: times, keys, live parts, plots, copying. No page needs it to be read.
(function () {
  "use strict";

  // Times: the server writes UTC; the reader's zone is shown, with UTC as the title.
  var format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  function showTimes(root) {
    root.querySelectorAll("time[datetime]:not([title])").forEach(function (element) {
      var moment = new Date(element.dateTime);
      if (isNaN(moment)) return;
      element.title = element.dateTime;
      element.textContent = format.format(moment);
    });
  }

  // Plots: uPlot draws on a canvas, in the colors of the page.
  var plots = [];
  var UNITS = [[1099511627776, "TiB"], [1073741824, "GiB"], [1048576, "MiB"], [1024, "KiB"]];
  function inUnit(value, unit) {
    if (value === null || value === undefined) return "–";
    if (unit === "bytes") {
      for (var i = 0; i < UNITS.length; i++)
        if (Math.abs(value) >= UNITS[i][0]) return (value / UNITS[i][0]).toPrecision(3) + " " + UNITS[i][1];
      return Math.round(value) + " bytes";
    }
    if (unit === "seconds") return value < 1 ? (value * 1000).toPrecision(3) + " ms" : value.toPrecision(3) + " s";
    if (unit === "percent") return (value * 100).toPrecision(3) + " %";
    return value.toLocaleString();
  }
  // The times of a plot span at least ten seconds, also of a single sample.
  function timeRange(plot, first, last) {
    if (plot.data[0].length === 1) first = last = plot.data[0][0];
    var missing = Math.max(0, 10 - (last - first)) / 2;
    return [first - missing, last + missing];
  }
  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }
  function drawPlots(root) {
    plots = plots.filter(function (one) {
      if (document.contains(one.figure)) return true;
      one.plot.destroy();
      return false;
    });
    if (typeof uPlot === "undefined") return;
    root.querySelectorAll("figure[data-plot]").forEach(function (figure) {
      var given = JSON.parse(figure.dataset.plot), canvas = figure.querySelector(".canvas");
      if (canvas.firstChild || !given.times.length) return;
      var axis = { stroke: color("--muted"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
      var dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
      var series = [{}].concat(given.series.map(function (one, index) {
        return {
          label: one[0], width: 2, stroke: color("--plot-" + (index % 6 + 1)), dash: dashes[Math.floor(index / 6) % 4],
          value: function (_, value) { return inUnit(value, given.unit); }
        };
      }));
      var data = [given.times.map(function (one) { return one / 1000; })].concat(
        given.series.map(function (one) { return one[1]; }));
      var plot = new uPlot({
        width: figure.clientWidth || 600, height: 200, series: series, cursor: { y: false },
        scales: { x: { range: timeRange } },
        axes: [axis, Object.assign({ size: 80, values: function (_, all) {
          return all.map(function (one) { return inUnit(one, given.unit); });
        } }, axis)]
      }, data, canvas);
      plots.push({ figure: figure, plot: plot });
    });
  }
  addEventListener("resize", function () {
    plots.forEach(function (one) { one.plot.setSize({ width: one.figure.clientWidth, height: 200 }); });
  });

  function redrawPlots() {
    plots.forEach(function (one) { one.plot.destroy(); });
    plots = [];
    drawPlots(document);
  }

  function refresh(root) {
    showTimes(root);
    drawPlots(root);
  }

  // Live parts: the server sends the part as HTML that it escaped, just as in the page.
  function follow(section) {
    var source = null, state = document.querySelector("[data-live-state]");
    function say(text) { if (state && state.textContent !== text) state.textContent = text; }
    function start() {
      if (source) return;
      source = new EventSource(section.dataset.live);
      source.addEventListener("swap", function (event) {
        if (section.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) return;
        section.innerHTML = event.data;
        say("Live");
        refresh(section);
      });
      source.addEventListener("end", function () { stop(); say("Ended"); });
      source.addEventListener("failed", function (event) { stop(); say("Stopped: " + event.data); });
      source.onerror = function () { say("Connecting"); };
    }
    function stop() { if (source) source.close(); source = null; }
    document.addEventListener("visibilitychange", function () {
      if (document.hidden) { stop(); say("Paused"); } else start();
    });
    addEventListener("pagehide", stop);
    if (!document.hidden) start();
  }

  // Keys: `/` searches, `g` and a letter open a page, `?` lists them.
  var waiting = 0;
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (Date.now() - waiting < 1500) {
      waiting = 0;
      var links = document.querySelectorAll("nav a[data-key]");
      for (var i = 0; i < links.length; i++)
        if (links[i].dataset.key === event.key) { links[i].click(); event.preventDefault(); return; }
    }
    if (event.key === "g") waiting = Date.now();
    else if (event.key === "/") {
      var field = document.querySelector("[data-search]");
      if (field) { field.focus(); field.select(); event.preventDefault(); }
    } else if (event.key === "?") document.getElementById("keys").showModal();
  });

  document.addEventListener("click", function (event) {
    var copy = event.target.closest("[data-copy]"), menu = event.target.closest("[data-menu]");
    if (copy && navigator.clipboard) navigator.clipboard.writeText(copy.dataset.copy).then(function () {
      copy.textContent = "Copied";
    }, function () { copy.textContent = "Copy by hand"; });
    if (menu) {
      var open = menu.getAttribute("aria-expanded") !== "true";
      menu.setAttribute("aria-expanded", String(open));
      document.getElementById("navigation").classList.toggle("open", open);
    }
    if (event.target.closest("[data-theme-switch]")) {
      var dark = matchMedia("(prefers-color-scheme: dark)").matches;
      var now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
      var next = now === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem("theme", next); } catch (error) { /* storage is off */ }
      redrawPlots();
    }
  });

  // A destructive action's button works once the name is typed; the server checks it, too.
  function checkConfirmations(root) {
    root.querySelectorAll("[data-confirm]").forEach(function (field) {
      var button = field.form.querySelector("button[type=submit]");
      function check() { button.disabled = field.value !== field.dataset.confirm; }
      field.addEventListener("input", check);
      check();
    });
  }

  refresh(document);
  checkConfirmations(document);
  document.querySelectorAll("[data-live]").forEach(follow);
  document.addEventListener("htmx:after:swap", function () {
    if (!document.getElementById("rows")) location.reload(); // an error, or the session has ended
    refresh(document);
  });
})();
