import fc from 'fast-check';

/** How far back a listing goes behind the high-water mark. */
export const overlap = 1000;

/** External events. An upload is listed at once or later; `back` dates it before its upload. */
export type HistoryEntry =
  | { kind: 'upload'; back: number; delay: number }
  | { kind: 'time'; ms: number }
  | { kind: 'remove'; index: number }
  | { kind: 'cursors are forgotten' };

/** How a sync is interrupted: at the nth call of the library or of the store. */
export type End =
  | { kind: 'whole' }
  | { kind: 'fault' | 'stop'; at: number }
  | { kind: 'death'; at: number; written: boolean };

/** What happens in the library, in syncs, and to the connections, one after the other. */
export type Step =
  | { kind: 'happens'; what: HistoryEntry[] }
  | { kind: 'run'; who: number; mode: 'incremental' | 'full'; between: HistoryEntry[]; end: End }
  | { kind: 'leaves' | 'comes back' | 'loses the company' | 'gets it back'; who: number };

/** An external event. */
export const happening = (options: { back: number; delay: number; removals: boolean }): fc.Arbitrary<HistoryEntry> =>
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        kind: fc.constant('upload' as const),
        back: options.back === 0 ? fc.constant(0) : fc.oneof(fc.constant(0), fc.integer({ min: 0, max: options.back })),
        delay: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: options.delay })),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant('time' as const),
        ms: fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 2 * overlap })),
      }),
    },
    { weight: 1, arbitrary: fc.constant({ kind: 'cursors are forgotten' as const }) },
    ...(options.removals
      ? [{ weight: 2, arbitrary: fc.record({ kind: fc.constant('remove' as const), index: fc.nat({ max: 50 }) }) }]
      : []),
  );

/** Any end of a sync. */
const end: fc.Arbitrary<End> = fc.oneof(
  { weight: 2, arbitrary: fc.constant({ kind: 'whole' as const }) },
  fc.record({ kind: fc.constantFrom('fault' as const, 'stop' as const), at: fc.integer({ min: 1, max: 6 }) }),
  fc.record({ kind: fc.constant('death' as const), at: fc.integer({ min: 1, max: 14 }), written: fc.boolean() }),
);

/** Any steps of this many people. */
export const steps = (what: fc.Arbitrary<HistoryEntry>, people: number): fc.Arbitrary<Step[]> =>
  fc.array(
    fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({
          kind: fc.constant('happens' as const),
          what: fc.array(what, { minLength: 1, maxLength: 8 }),
        }),
      },
      {
        weight: 5,
        arbitrary: fc.record({
          kind: fc.constant('run' as const),
          who: fc.nat({ max: people - 1 }),
          mode: fc.constantFrom('incremental' as const, 'incremental' as const, 'full' as const),
          between: fc.array(what, { maxLength: 5 }),
          end,
        }),
      },
      ...(people > 1
        ? [
            {
              weight: 2,
              arbitrary: fc.record({
                kind: fc.constantFrom(
                  'leaves' as const,
                  'comes back' as const,
                  'loses the company' as const,
                  'gets it back' as const,
                ),
                who: fc.nat({ max: people - 1 }),
              }),
            },
          ]
        : []),
    ),
    { minLength: 2, maxLength: 12 },
  );
