// Reads the page as text, numbers what can be clicked or filled in, and keeps those elements for later calls.
(() => {
  const LONGEST = 400000, NAME = 80;
  const skipped = new Set(['SCRIPT', 'STYLE', 'NOSCRIPT', 'TEMPLATE', 'SVG', 'HEAD', 'OBJECT', 'EMBED', 'CANVAS', 'VIDEO', 'AUDIO', 'DATALIST']);
  const blocks = /^(P|DIV|SECTION|ARTICLE|H[1-6]|LI|TR|TABLE|UL|OL|DL|DT|DD|PRE|FORM|HEADER|FOOTER|NAV|MAIN|ASIDE|BR|HR|FIELDSET|BLOCKQUOTE|FIGURE|DETAILS|SUMMARY)$/;
  const found = [];
  let text = '', cut = false;
  const put = (more) => {
    if (text.length + more.length > LONGEST) { cut = true; return; }
    text += more;
  };
  const line = () => { if (text && !text.endsWith('\n')) put('\n'); };
  const brief = (words) => String(words || '').replace(/\s+/g, ' ').trim().slice(0, NAME);
  const number = (element) => found.push(element);
  const name = (e) => brief(e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText)
    || e.getAttribute('placeholder') || e.getAttribute('name') || e.getAttribute('title') || '');
  const shown = (e) => e.checkVisibility ? e.checkVisibility({ checkVisibilityCSS: true }) : true;
  const where = (e) => {
    try {
      const to = new URL(e.href, location.href);
      if (to.origin === location.origin) return to.pathname + to.search + to.hash;
      return /^https?:$/.test(to.protocol) ? to.href : to.protocol;
    } catch { return ''; }
  };
  const field = (e, tag) => {
    const type = tag === 'INPUT' ? (e.getAttribute('type') || 'text').toLowerCase() : '';
    if (type === 'hidden') return;
    const off = e.disabled ? ', disabled' : '';
    const called = name(e);
    if (tag === 'SELECT') {
      const options = [...e.options].slice(0, 40).map((o) => (o.selected ? '*' : '') + brief(o.text)).join(' | ');
      put(`[${number(e)} choice "${called}"${off}: ${options}]`);
    } else if (type === 'checkbox' || type === 'radio') {
      put(`[${number(e)} ${type} "${called}"${off}: ${e.checked ? 'on' : 'off'}]`);
    } else if (['submit', 'button', 'image', 'reset'].includes(type)) {
      put(`[${number(e)} button${off}: ${brief(e.value) || called || type}]`);
    } else if (type === 'password') {
      put(`[${number(e)} field "${called}"${off}: ${e.value ? '(filled)' : ''}]`);
    } else {
      put(`[${number(e)} field "${called}"${off}: ${brief(e.value)}]`);
    }
  };
  const walk = (node, pre) => {
    if (cut) return;
    if (node.nodeType === 3) {
      const words = pre ? node.data : node.data.replace(/\s+/g, ' ');
      put(text.endsWith('\n') && !pre ? words.trimStart() : words);
      return;
    }
    if (node.nodeType !== 1) return;
    const tag = node.tagName.toUpperCase();
    if (skipped.has(tag) || !shown(node)) return;
    if (tag === 'IFRAME' || tag === 'FRAME') { line(); put(`[a frame: ${brief(node.src)}]\n`); return; }
    if (tag === 'IMG') { if (node.alt) put(`[image: ${brief(node.alt)}]`); return; }
    if (tag === 'INPUT' || tag === 'SELECT' || tag === 'TEXTAREA') { field(node, tag); put(' '); return; }
    const block = blocks.test(tag);
    if (block) line();
    if (/^H[1-6]$/.test(tag)) put('#'.repeat(Number(tag[1])) + ' ');
    if (tag === 'LI') put('- ');
    const link = tag === 'A' && node.hasAttribute('href');
    const button = tag === 'BUTTON' || tag === 'SUMMARY' || node.getAttribute('role') === 'button';
    const editable = node.isContentEditable && !(node.parentElement && node.parentElement.isContentEditable);
    if (link) put(`[${number(node)} link: `);
    else if (button) put(`[${number(node)} button${node.disabled ? ', disabled' : ''}: `);
    else if (editable) put(`[${number(node)} field "${name(node)}": `);
    const root = node.shadowRoot || node;
    const inner = pre || tag === 'PRE';
    for (const child of root.childNodes) walk(child, inner);
    if (link) put(` -> ${where(node)}]`);
    else if (button || editable) put(']');
    if (tag === 'TD' || tag === 'TH') put('\t');
    if (block) line();
  };
  if (document.body) walk(document.body, false);
  globalThis.formworkFound = found;
  return { url: location.href, title: document.title, text: text.replace(/\n{3,}/g, '\n\n').trim(), cut, count: found.length };
})()
