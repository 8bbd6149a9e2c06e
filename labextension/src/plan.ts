/** What the panel shows of a model's plan: the rungs of the ladder, and what may be chosen. Pure. */

import { amount, took, type Trans } from './format';
import type { Plan, Rung } from './types';

/** A rung as the table shows it. */
export interface RungLine {
  /** By which an instructor may ask for it. */
  name: string;
  words: string;
  memory: string;
  /** What it takes of the other GPU, if anything. */
  elsewhere: string;
  picture: string;
  why: string;
  chosen: boolean;
}

/** A plan in words. */
export interface PlanLines {
  where: string;
  /** Where hardly anything would be left; "" otherwise. */
  warning: string;
  /** What the model cannot do, and which numbers are guesses. */
  notes: string[];
  rungs: RungLine[];
  /** What the signs before the seconds mean, where there are any. */
  legend: string;
}

/** Something that may be chosen from a list. */
export interface Choice {
  value: string;
  words: string;
}

/** Before seconds that were not measured on that very rung. */
const SIGNS: Record<Rung['basis'], string> = { measured: '', reckoned: '≈ ', guess: '? ', '': '' };

/** The plan for people to read. */
export function planLines(plan: Plan, trans: Trans): PlanLines {
  const there = plan.placement
    ? trans.__('Now on %1: %2.', plan.device, plan.placement)
    : trans.__('On %1 it would have room for %2.', plan.device, amount(plan.room_bytes));
  return {
    where: [there, blocksWords(plan.blocks, trans)].filter(Boolean).join(' '),
    warning: plan.warning,
    notes: plan.notes ?? [],
    rungs: plan.rungs.map(rung => rungLine(rung, plan, trans)),
    legend: plan.rungs.some(rung => SIGNS[rung.basis])
      ? trans.__('≈ reckoned from what was measured otherwise · ? a guess')
      : ''
  };
}

function rungLine(rung: Rung, plan: Plan, trans: Trans): RungLine {
  const plain = plan.blocks === 'compiled' && !rung.compiled ? trans.__(' (not compiled)') : '';
  return {
    name: rung.rung,
    words: rung.words,
    memory: amount(rung.needed_bytes),
    elsewhere: rung.elsewhere_bytes
      ? trans.__('and %1 of the other GPU', amount(rung.elsewhere_bytes))
      : '',
    picture: `${SIGNS[rung.basis]}${took(rung.expected_s)}${plain}`,
    why: rung.why,
    chosen: rung.chosen
  };
}

function blocksWords(blocks: Plan['blocks'], trans: Trans): string {
  switch (blocks) {
    case 'compiled':
      return trans.__('Its blocks are compiled.');
    case 'not compiled yet':
      return trans.__('Its blocks are not compiled yet.');
    case 'not compiled':
      return '';
  }
}

/**
 * How the model may be placed, the placement that counts now among it. None while its parts are not
 * known: then the plan has one rung, and any name may be typed.
 */
export function placementChoices(plan: Plan, now: string, trans: Trans): Choice[] {
  if (plan.rungs.length < 2) {
    return [];
  }
  const choices = [
    { value: '', words: trans.__('as in models.toml') },
    { value: 'auto', words: trans.__('auto: the planner decides') },
    ...plan.rungs.map(({ rung, words }) => ({ value: rung, words: `${rung}: ${words}` }))
  ];
  if (!choices.some(choice => choice.value === now)) {
    choices.push({ value: now, words: now });
  }
  return choices;
}
