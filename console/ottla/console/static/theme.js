// The reader's choice of light or dark, before anything is drawn. Without one, the system's applies.
(function () {
  "use strict";
  var chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch (error) { /* storage is off */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
