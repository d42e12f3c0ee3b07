/** The name of a superseded file, by the time at which it was replaced: `20260131T120000000Z`. Some file systems refuse colons. */
export const versionName = (replacedAt: Date) => replacedAt.toISOString().replace(/[-:.]/g, '');
