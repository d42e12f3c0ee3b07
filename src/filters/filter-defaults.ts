import type { Log } from '../floor/log.ts';
import { assetTypes, unknownTypes } from '../source/schemas.ts';
import type { Store } from '../store/store.ts';
import type { FilterDefaults } from './filters.ts';

/** Records the filters of the environment. After a change all assets are filtered again. Asset types that the API does not know are logged. */
export async function recordFilterDefaults(store: Store, defaults: FilterDefaults, log: Log): Promise<void> {
  const { includeTypes, excludeTypes } = defaults;
  for (const type of unknownTypes([...includeTypes, ...excludeTypes])) {
    log.warn(
      { event: 'filter.unknown_type_found', type, known: assetTypes.join(', ') },
      'unknown asset type in a filter',
    );
  }
  if (await store.filters.changeDefaults(defaults))
    log.info({ event: 'filter.defaults_changed', includeTypes, excludeTypes }, 'default filters changed');
}
