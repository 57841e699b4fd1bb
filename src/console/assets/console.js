// Live updates, copy buttons and keyboard shortcuts. Every page also works without scripts.
"use strict";

(() => {
    const NEW_EVERY = 2000;
    const AGAIN_EVERY = 5000;

    /** Runs `work` at this interval while the page is visible. */
    const every = (wait, work) => {
        let isRunning = false;
        setInterval(async () => {
            if (document.hidden || isRunning) return;
            isRunning = true;
            try { await work(); } catch { /* The console or the daemon is unreachable: try again at the next interval. */ }
            isRunning = false;
        }, wait);
    };

    // Only count new events. They are shown on request, so that the list does not move while it is read.
    const arrived = document.getElementById("arrived");
    if (arrived) {
        const { mark, query } = arrived.dataset;
        const link = arrived.querySelector("a");
        every(NEW_EVERY, async () => {
            const answer = await fetch(`/new?${query}&mark=${encodeURIComponent(mark)}`, { headers: { accept: "application/json" } });
            if (!answer.ok) return;
            const { count, most } = await answer.json();
            if (count === 0) return;
            link.firstElementChild.textContent = `${count}${most ? " or more" : ""} new event${count === 1 ? "" : "s"}`;
            arrived.hidden = false;
        });
    }

    // Refresh the changing part of a page, unless the user has opened, focused or selected something in it.
    const now = document.querySelector("[data-again]");
    if (now) {
        every(AGAIN_EVERY, async () => {
            if (now.querySelector("details[open]") || now.contains(document.activeElement) || !getSelection().isCollapsed) return;
            const answer = await fetch(now.dataset.again);
            if (answer.ok) now.innerHTML = await answer.text();
        });
    }

    document.addEventListener("click", async (event) => {
        const button = event.target.closest("[data-copy], [data-copy-from]");
        if (button) {
            const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom).value;
            await navigator.clipboard.writeText(text);
            button.textContent = "Copied";
        }
        for (const menu of document.querySelectorAll("details.menu[open]")) {
            if (!menu.contains(event.target)) menu.open = false;
        }
    });

    // Leave empty fields out of the address.
    for (const form of document.querySelectorAll("form[method=get]")) {
        form.addEventListener("formdata", ({ formData }) => {
            const filled = [...formData].filter(([, value]) => value !== "");
            for (const name of new Set(formData.keys())) formData.delete(name);
            for (const [name, value] of filled) formData.append(name, value);
        });
    }

    const rows = () => [...document.querySelectorAll(".list a.open")];
    const step = (by) => {
        const all = rows();
        const at = all.findIndex((row) => row.closest("tr").contains(document.activeElement));
        const next = all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)];
        next?.focus();
    };
    document.addEventListener("keydown", (event) => {
        if (event.key === "Escape") {
            for (const menu of document.querySelectorAll("details.menu[open]")) {
                menu.open = false;
                menu.querySelector("summary").focus();
            }
            return;
        }
        if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
        const keys = {
            "/": () => document.getElementById("search")?.focus(),
            j: () => step(1),
            k: () => step(-1),
            n: () => { if (arrived && !arrived.hidden) arrived.querySelector("a").click(); },
        };
        if (keys[event.key]) {
            event.preventDefault();
            keys[event.key]();
        }
    });
})();
