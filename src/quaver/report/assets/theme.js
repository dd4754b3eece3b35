"use strict";
// Before anything is drawn: the theme that was chosen last, or the system's.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("quaver-theme"); } catch (error) { /* a page from a file may have no storage */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
