import { DomUtils, parseDocument } from 'htmlparser2';

type Node = ReturnType<typeof parseDocument>;
export type Element = ReturnType<typeof DomUtils.getElementsByTagName>[number];

export type Page = { url: string; status: number; document: Node; text: string };

export function pageOf(url: string, status: number, html: string): Page {
  const document = parseDocument(html);
  const body = elements(document, 'body')[0] ?? document;
  return { url, status, document, text: textOf(body) };
}

export function elements(within: Node | Element, ...names: string[]): Element[] {
  return DomUtils.getElementsByTagName((name) => names.includes(name), within, true);
}

/** The visible text in one line, without styles and scripts. */
export function textOf(node: Node | Element): string {
  return DomUtils.innerText(node).replace(/\s+/g, ' ').trim();
}

/** What a form sends by default: hidden, filled-in and checked fields. */
export function fieldsOf(form: Element): [string, string][] {
  return elements(form, 'input', 'select', 'textarea').flatMap((field): [string, string][] => {
    const { name, value = '', checked, disabled } = field.attribs;
    const type = typeOf(field);
    if (!name || disabled !== undefined || /^(submit|button|image|reset|file)$/.test(type)) return [];
    if (type === 'checkbox' || type === 'radio') return checked === undefined ? [] : [[name, value || 'on']];
    if (field.name === 'textarea') return [[name, DomUtils.textContent(field)]];
    if (field.name === 'select') {
      const options = elements(field, 'option');
      const option = options.find(({ attribs }) => attribs.selected !== undefined) ?? options[0];
      return option ? [[name, option.attribs.value ?? textOf(option)]] : [];
    }
    return [[name, value]];
  });
}

export function typeOf(field: Element): string {
  return (field.attribs.type ?? 'text').toLowerCase();
}

export function boxesOf(form: Element): Element[] {
  return elements(form, 'input').filter((field) => typeOf(field) === 'checkbox');
}

export type Button = { form: Element; label: string; field: [string, string][] };

/** The buttons that submit a form, with their labels. */
export function buttonsOf(form: Element): Button[] {
  return elements(form, 'button', 'input').flatMap((button) => {
    const { name, value = '' } = button.attribs;
    const isButton = button.name === 'button' ? button.attribs.type !== 'button' : typeOf(button) === 'submit';
    const label = button.name === 'button' ? textOf(button) : value;
    return isButton ? [{ form, label, field: name ? [[name, value] as [string, string]] : [] }] : [];
  });
}

export function buttonOf({ document }: Page, words: RegExp): Button | undefined {
  const buttons = elements(document, 'form').flatMap(buttonsOf);
  return buttons.find(({ label }) => words.test(label));
}

export function linkOf({ document, url }: Page, words: RegExp): string | undefined {
  const link = elements(document, 'a').find((link) => link.attribs.href && words.test(textOf(link)));
  return link && new URL(link.attribs.href!, url).href;
}

export function picturesOf({ document }: Page): string[] {
  return elements(document, 'img').map(({ attribs }) => attribs.src ?? '');
}

/** The label of a field. */
export function labelOf(field: Element): string {
  for (let at = DomUtils.getParent(field); at; at = DomUtils.getParent(at as Element)) {
    if ((at as Element).name === 'label') return textOf(at as Element);
  }
  return '';
}

/** The context of a form: the largest element that contains no other form. */
export function rowOf(form: Element, forms: Element[]): Element {
  const others = forms.filter((other) => other !== form);
  let row = form;
  for (let at = DomUtils.getParent(form); at; at = DomUtils.getParent(at as Element)) {
    const inside = elements(at as Element, 'form');
    if (others.some((other) => inside.includes(other)) || !('attribs' in at)) break;
    row = at as Element;
  }
  return row;
}
