/**
 * What an instructor can do: each action says what it will do, does it by one request, and says
 * what came of it. No DOM: who shows an action asks first and then shows the outcome.
 */

import type { Method } from './api';
import { amount, span, type Trans } from './format';
import { placementChoices, type Choice } from './plan';
import type { Device, HelpCall, Job, Kernel, Model, Participant, Plan, Reservation } from './types';

export interface Action {
  /** On the button. */
  label: string;
  /** The question, and what it will do. */
  title: string;
  before: string;
  /** Whether something is lost by it. */
  hurts?: boolean;
  /** Where it takes a text: what that is. */
  input?: { label: string; value: string; choices?: Choices };
  method: Method;
  path: string;
  body?: (text: string) => unknown;
  /** What came of it. */
  done: string;
}

/** What may be chosen, as an answer of the server says; a text is typed where that is nothing. */
export interface Choices {
  path: string;
  of: (answer: unknown) => Choice[];
}

const at = (kind: string, id: string, verb = ''): string =>
  [kind, encodeURIComponent(id), verb].filter(Boolean).join('/');

/** What was typed as a number; what is none stays a text, which the server refuses with words. */
function numberIn(text: string): number | string | null {
  const number = Number(text);
  return text.trim() === '' ? null : Number.isFinite(number) ? number : text;
}

/** What can be done with a model as it is now. */
export function modelActions(model: Model, trans: Trans): Action[] {
  const { title } = model;
  const path = at('models', model.id);
  const loaded = model.slots.some(slot => slot.state === 'ready');
  const actions: Action[] = [];
  if (model.enabled) {
    actions.push({
      label: trans.__('Withdraw'),
      title: trans.__('Withdraw %1?', title),
      before: trans.__(
        'Nobody can ask for %1 any more. Jobs that wait for it already are still drawn.',
        title
      ),
      input: { label: trans.__('Reason, for everybody to read (optional)'), value: '' },
      method: 'PATCH',
      path,
      body: reason => ({ offered: false, reason }),
      done: trans.__('%1 is withdrawn.', title)
    });
  } else {
    actions.push({
      label: trans.__('Offer'),
      title: trans.__('Offer %1?', title),
      before: trans.__('Everybody can ask for %1 again.', title),
      method: 'PATCH',
      path,
      body: () => ({ offered: true }),
      done: trans.__('%1 is offered.', title)
    });
  }
  if (!loaded && model.enabled) {
    actions.push({
      label: trans.__('Load'),
      title: trans.__('Load %1 now?', title),
      before: trans.__(
        'It takes about %1 of a GPU. Idle models leave if there is no room; no running job is touched.',
        amount(model.bytes)
      ),
      method: 'POST',
      path: at('models', model.id, 'load'),
      done: trans.__('%1 is being loaded.', title)
    });
  }
  if (loaded) {
    actions.push({
      label: trans.__('Evict'),
      title: trans.__('Take %1 off the GPU?', title),
      before: trans.__(
        'About %1 come free. The next job that asks for it waits until it is loaded again.',
        amount(model.bytes)
      ),
      method: 'POST',
      path: at('models', model.id, 'evict'),
      done: trans.__('%1 leaves as soon as nobody uses it.', title)
    });
  }
  if (model.enabled) {
    actions.push({
      label: model.pinned ? trans.__('Unpin') : trans.__('Pin'),
      title: model.pinned ? trans.__('Unpin %1?', title) : trans.__('Pin %1?', title),
      before: model.pinned
        ? trans.__('It may leave the GPU again when others need the room.')
        : trans.__('It is loaded, and stays on its GPU whatever others ask for.'),
      method: 'PATCH',
      path,
      body: () => ({ pinned: !model.pinned }),
      done: model.pinned
        ? trans.__('%1 is no longer pinned.', title)
        : trans.__('%1 is pinned.', title)
    });
    actions.push({
      label: trans.__('Keep warm'),
      title: trans.__('How long does %1 stay when nobody uses it?', title),
      before: trans.__(
        'Seconds on the GPU after its last use; -1: for ever; empty: as in models.toml.'
      ),
      input: { label: trans.__('Seconds'), value: String(model.keep_warm_s) },
      method: 'PATCH',
      path,
      body: text => ({ keep_warm_s: numberIn(text) }),
      done: trans.__('Changed how long %1 stays warm.', title)
    });
    actions.push({
      label: trans.__('Place'),
      title: trans.__('How is %1 placed?', title),
      before: trans.__(
        'A name from its plan, or "auto": the planner decides; empty: as in models.toml. It counts from the next load on.'
      ),
      input: {
        label: trans.__('Placement'),
        value: model.placement,
        choices: {
          path: at('models', model.id, 'plan'),
          of: plan => placementChoices(plan as Plan, model.placement, trans)
        }
      },
      method: 'PATCH',
      path,
      body: text => ({ placement: text.trim() || null }),
      done: trans.__('Changed how %1 is placed.', title)
    });
  }
  return actions;
}

export function cancelJob(job: Job, trans: Trans): Action {
  return {
    label: trans.__('Cancel'),
    title: trans.__('Cancel the job of %1?', job.participant),
    before:
      job.state === 'running'
        ? trans.__('It stops after the step that it is at; its picture is lost.')
        : trans.__('It leaves the queue; those behind it move up.'),
    hurts: true,
    method: 'DELETE',
    path: at('jobs', job.id),
    done: trans.__('The job of %1 is cancelled.', job.participant)
  };
}

export function pauseOrResume(paused: string, trans: Trans): Action {
  return paused
    ? {
        label: trans.__('Resume the queue'),
        title: trans.__('Resume the queue?'),
        before: trans.__('Waiting jobs start again, in their order.'),
        method: 'POST',
        path: 'queue/resume',
        done: trans.__('The queue goes on.')
      }
    : {
        label: trans.__('Pause the queue'),
        title: trans.__('Pause the queue?'),
        before: trans.__('Running jobs finish; no waiting job starts until you resume it.'),
        input: { label: trans.__('Reason, for everybody who waits (optional)'), value: '' },
        method: 'POST',
        path: 'queue/pause',
        body: reason => (reason.trim() ? { reason } : {}),
        done: trans.__('The queue is paused.')
      };
}

/** Clear a GPU for training, or open it again. */
export function clearOrOpen(
  device: Device,
  reservation: Reservation | undefined,
  trans: Trans
): Action {
  return reservation
    ? {
        label: trans.__('Give back to the room'),
        title: trans.__('Give %1 back to the room?', device.id),
        before: trans.__('Models are loaded there again. Your own code there should be done.'),
        method: 'DELETE',
        path: at('devices', device.id, 'clear'),
        done: trans.__('%1 serves the room again.', device.id)
      }
    : {
        label: trans.__('Clear for training'),
        title: trans.__('Clear %1 for training?', device.id),
        before: trans.__(
          'Running jobs finish, its models leave, and nothing is loaded there until you give it back. Jobs run on other GPUs or wait.'
        ),
        hurts: true,
        method: 'POST',
        path: at('devices', device.id, 'clear'),
        done: trans.__('%1 is being cleared.', device.id)
      };
}

export function endReservation(reservation: Reservation, trans: Trans): Action {
  const { participant } = reservation;
  return {
    label: trans.__('End'),
    title: trans.__('End the reservation of %1?', participant),
    before:
      reservation.state === 'waiting'
        ? trans.__('It leaves the queue; those behind it move up.')
        : trans.__(
            'Others may use the memory at once. Code of %1 that still holds it may run out of memory.',
            participant
          ),
    hurts: true,
    method: 'DELETE',
    path: at('reservations', reservation.id),
    done: trans.__('The reservation of %1 is over.', participant)
  };
}

export function setPriority(person: Participant, priority: string, trans: Trans): Action {
  return {
    label: priority,
    title: trans.__('Change the priority of %1?', person.name),
    before: trans.__(
      'Their jobs, also those that wait now, count as "%1": classes above go first, those below later.',
      priority
    ),
    method: 'PATCH',
    path: at('participants', person.id),
    body: () => ({ priority }),
    done: trans.__('The priority of %1 is "%2".', person.name, priority)
  };
}

export function setLimit(person: Participant, trans: Trans): Action {
  return {
    label: trans.__('Limit'),
    title: trans.__('How many jobs of %1 may wait?', person.name),
    before: trans.__('Further ones are refused with a message. 0: none; empty: as for all.'),
    input: { label: trans.__('Waiting jobs'), value: String(person.queue_limit) },
    method: 'PATCH',
    path: at('participants', person.id),
    body: text => ({ queue_limit: numberIn(text) }),
    done: trans.__('The limit of %1 is changed.', person.name)
  };
}

export function restartKernel(
  person: Participant,
  kernel: Kernel | undefined,
  trans: Trans
): Action {
  const lost = kernel?.restart_loses.join('; ') ?? trans.__('all variables of the notebook');
  return {
    label: trans.__('Restart this kernel'),
    title: trans.__('Restart the kernel of %1?', person.name),
    before: trans.__('Lost with it: %1. Finished pictures stay.', lost),
    hurts: true,
    method: 'POST',
    path: at('kernels', person.kernel ?? '', 'restart'),
    done: trans.__('The kernel of %1 is restarted.', person.name)
  };
}

export function tellAll(trans: Trans): Action {
  return {
    label: trans.__('Message to all'),
    title: trans.__('Message to all'),
    before: trans.__(
      'Everybody reads it at the top of their panel and studio until you take it back.'
    ),
    input: { label: trans.__('Message'), value: '' },
    method: 'POST',
    path: 'message',
    body: text => ({ text }),
    done: trans.__('Everybody can read it now.')
  };
}

export function takeBack(trans: Trans): Action {
  return {
    label: trans.__('Take the message back'),
    title: trans.__('Take the message back?'),
    before: trans.__('It disappears everywhere.'),
    method: 'DELETE',
    path: 'message',
    done: trans.__('The message is gone.')
  };
}

export function helped(call: HelpCall, trans: Trans): Action {
  return {
    label: trans.__('Helped'),
    title: trans.__('Take down the hand of %1?', call.name),
    before: trans.__('They see that their call was answered.'),
    method: 'DELETE',
    path: at('help', call.participant),
    done: trans.__('The hand of %1 is down.', call.name)
  };
}

/** A number of the rules for all. */
export function setRule(name: string, label: string, value: number, trans: Trans): Action {
  const shown = name.endsWith('_s') ? span(value) : String(value);
  return {
    label: trans.__('Apply'),
    title: trans.__('Change the rules for all?'),
    before: trans.__('%1: %2. It counts from now on, also for those who wait.', label, shown),
    method: 'PATCH',
    path: 'policy',
    body: () => ({ [name]: value }),
    done: trans.__('%1 is now %2.', label, shown)
  };
}
