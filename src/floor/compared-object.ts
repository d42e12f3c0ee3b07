/** An object that a verification compared. `version`: of this superseded file; `gone`: of an asset that is no longer in the library. */
export interface ComparedObject {
  kind: 'media' | 'record' | 'transcript' | 'thumbnail';
  version?: string;
  gone?: true;
}

export const storedOrKept = ({ version }: Pick<ComparedObject, 'version'>) =>
  version === undefined ? 'stored' : 'kept';

/** The end of a sentence about an object: which one, and whether it cannot be fetched again. */
export const objectText = ({ kind, version, gone }: ComparedObject): string =>
  version === undefined
    ? `: the ${kind}${goneText(gone)}`
    : `: the ${kind} of version ${version}, which cannot be fetched again`;

export const goneText = (gone?: true) =>
  gone ? '; it is no longer in the library, so it cannot be fetched again' : '';
