// Live updates, copy buttons and keyboard shortcuts. Every page also works without scripts.
"use strict";

(() => {
    document.documentElement.classList.add("script");
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

    // While the list is live and its beginning is visible, new events are shown at once. Otherwise they are only counted, so that
    // the list does not move while it is read.
    const arrived = document.getElementById("arrived");
    const list = document.getElementById("list");
    const live = document.getElementById("live");
    const isUsed = (part) => part.contains(document.activeElement) || part.matches(":hover") || !getSelection().isCollapsed
        || document.querySelector("details.menu[open], dialog[open]");
    const follows = () => live.ariaPressed === "true" && scrollY < 100 && !isUsed(list);
    if (arrived && list?.dataset.mark) {
        const setLive = (isLive) => {
            live.ariaPressed = String(isLive);
            live.lastElementChild.textContent = isLive ? "Live" : "Paused";
            live.title = isLive ? "Pause: new events are only counted" : "Show new events at once";
            sessionStorage.setItem("paused", isLive ? "" : "1");
        };
        setLive(!sessionStorage.getItem("paused"));
        live.hidden = false;
        live.addEventListener("click", () => setLive(live.ariaPressed !== "true"));
        const show = async () => {
            const answer = await fetch(location.href);
            if (!answer.ok) return;
            const page = new DOMParser().parseFromString(await answer.text(), "text/html");
            const newer = page.getElementById("list");
            if (!newer || !follows()) return;
            list.replaceChildren(...newer.childNodes);
            list.dataset.mark = newer.dataset.mark;
            document.querySelector(".heading .sub").textContent = page.querySelector(".heading .sub").textContent;
            arrived.hidden = true;
        };
        every(NEW_EVERY, async () => {
            const { mark, query } = list.dataset;
            const answer = await fetch(`/new?${query}&mark=${encodeURIComponent(mark)}`, { headers: { accept: "application/json" } });
            if (!answer.ok) return;
            const { count, most } = await answer.json();
            if (count === 0) return;
            if (follows()) return show();
            arrived.querySelector("span").textContent = `${count}${most ? " or more" : ""} new event${count === 1 ? "" : "s"}`;
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
            if (button.matches(".copy")) {
                button.classList.add("done");
                button.title = "Copied";
                // The focus would stop the refresh of the page. Whoever uses the keyboard keeps it.
                if (event.detail > 0) button.blur();
            } else {
                button.textContent = "Copied";
            }
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

    // The keyboard shortcuts of this page: the key, its effect in words, and its effect. Links with `data-key` have their own key.
    const rows = () => [...document.querySelectorAll(".list a.open")];
    const step = (by) => {
        const all = rows();
        const at = all.findIndex((row) => row.closest("tr").contains(document.activeElement));
        all[at < 0 ? 0 : Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
    };
    const search = document.getElementById("search");
    const shortcuts = [["/", search ? "Search" : "Search the events", () => (search ? search.focus() : location.assign("/?search"))]];
    for (const link of document.querySelectorAll("a[data-key]")) {
        const { key } = link.dataset;
        shortcuts.push([key, key === "Escape" ? `Back to: ${link.textContent}` : link.textContent, () => link.click()]);
    }
    if (rows().length > 0) {
        shortcuts.push(["j", "Next row", () => step(1)], ["k", "Previous row", () => step(-1)], ["Enter", "Open the row"]);
    }
    if (arrived) shortcuts.push(["n", "Show new events", () => { if (!arrived.hidden) arrived.querySelector("a").click(); }]);
    if (document.getElementById("palette")) shortcuts.push(["Ctrl+K", "Go to a page, channel, sink or consumer"]);
    shortcuts.push(["?", "This list", () => showShortcuts()]);
    if (search && location.search === "?search") search.focus();

    const showShortcuts = () => {
        const sheet = document.createElement("dialog");
        sheet.setAttribute("aria-labelledby", "shortcuts");
        sheet.innerHTML = '<h2 id="shortcuts">Keyboard shortcuts</h2><dl></dl><form method="dialog"><button>Close</button></form>';
        for (const [key, effect] of shortcuts) {
            const name = document.createElement("dt");
            name.append(Object.assign(document.createElement("kbd"), { textContent: key === "Escape" ? "Esc" : key }));
            sheet.querySelector("dl").append(name, Object.assign(document.createElement("dd"), { textContent: effect }));
        }
        sheet.addEventListener("close", () => sheet.remove());
        document.body.append(sheet);
        sheet.showModal();
    };
    const help = document.getElementById("keys");
    if (help) {
        help.hidden = false;
        help.addEventListener("click", showShortcuts);
    }

    document.addEventListener("keydown", (event) => {
        const menus = document.querySelectorAll("details.menu[open]");
        if (event.key === "Escape" && menus.length > 0) {
            for (const menu of menus) {
                menu.open = false;
                menu.querySelector("summary").focus();
            }
            return;
        }
        if (event.key === "Escape" && event.target.closest("input, textarea")) return event.target.blur();
        if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
        const shortcut = shortcuts.find(([key, , effect]) => key === event.key && effect);
        if (shortcut) {
            event.preventDefault();
            shortcut[2]();
        }
    });
})();
