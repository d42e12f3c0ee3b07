import type { Operations } from '../operations/operations.ts';

export type { Plan, PlanProgress } from '../operations/connections/full-sync-plan.ts';
export type { EventFilter } from '../operations/events/events.ts';

export type OperationName = keyof Operations;
/** The answer of an operation. */
export type Answer<Name extends OperationName> = Awaited<ReturnType<Operations[Name]>>;
/** The argument of an operation at position `At`, from 0. */
export type Asked<Name extends OperationName, At extends number = 0> = NonNullable<Parameters<Operations[Name]>[At]>;

export type ConnectionSummary = Answer<'connection'>;
export type MirrorEvent = Answer<'events'>['events'][number];
export type Status = Answer<'status'>;
export type Sync = Answer<'sync'>;
export type Verification = Answer<'verification'>;
