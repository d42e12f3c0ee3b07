/** Markup that is safe to send. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

type Piece = Html | string | number | false | null | undefined | Piece[];

/** Escapes all values, except for those made with the same tag. */
export function html(strings: TemplateStringsArray, ...pieces: Piece[]): Html {
  return new Html(strings.map((text, i) => (i === 0 ? '' : rendered(pieces[i - 1])) + text).join(''));
}

function rendered(piece: Piece): string {
  if (piece instanceof Html) return piece.text;
  if (Array.isArray(piece)) return piece.map(rendered).join('');
  if (piece === false || piece === null || piece === undefined) return '';
  return String(piece).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
