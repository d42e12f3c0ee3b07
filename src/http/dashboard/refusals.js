/** @typedef {{ field: string, detail: string, value?: string, known?: { id: string, name: string }[] }} WrongField */

/**
 * A refusal in the words of a form. `labelOf` has the label of a field; a refusal of another field stays as it is.
 * @param {Error & { code?: string, errors?: WrongField[] }} error
 * @param {(field: string) => string | undefined} labelOf
 */
export function withLabels({ message, code, errors }, labelOf) {
  if (!errors?.every(({ field }) => labelOf(field))) return new Error(message);
  const details = errors.map(({ field, detail, value, known }) => {
    const wrong = code === 'unknown_name' ? `${value} is unknown${known ? ` (known: ${namesOf(known)})` : ''}` : detail;
    return `${labelOf(field)}: ${wrong}`;
  });
  return new Error(`${details.join('; ')}.`);
}

const namesOf = (/** @type {{ name: string }[]} */ known) => known.map(({ name }) => name).join(', ') || 'none';
