import React, { useState } from 'react';
import { modelActions } from '../actions';
import type { Desk } from '../desk';
import { amount, took, type Trans } from '../format';
import type { Room } from '../room';
import type { Plan, Rung } from '../types';
import { modelLines } from '../view';
import { Do } from './Doing';
import { useAnswer } from './hooks';
import { ModelRow } from './Now';

/** The models, with all that can be done with each. */
export function ModelsTab({ desk, room }: { desk: Desk; room: Room }) {
  const { trans } = desk;
  return (
    <section className="jp-wg-models">
      <ul>
        {modelLines(room, trans).map(line => (
          <ModelRow key={line.id} line={line}>
            <div className="jp-wg-tools">
              {modelActions(line.model, trans).map(action => (
                <Do key={action.label} action={action} />
              ))}
            </div>
            {line.model.enabled && !line.model.problem && (
              <Placement desk={desk} model={line.id} state={line.state} />
            )}
          </ModelRow>
        ))}
      </ul>
    </section>
  );
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

/** Before seconds that were not measured on that very rung. */
const SIGNS: Record<Rung['basis'], string> = { measured: '', reckoned: '≈ ', guess: '? ', '': '' };

interface PlacementProps {
  desk: Desk;
  model: string;
  state: string;
}

/** Where its weights would live, and why; asked for when it is unfolded. */
function Placement(props: PlacementProps) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={event => setOpen(event.currentTarget.open)}>
      <summary>{props.desk.trans.__('Placement')}</summary>
      {open && <PlanTable {...props} />}
    </details>
  );
}

function PlanTable({ desk, model, state }: PlacementProps) {
  const { trans } = desk;
  const path = `models/${encodeURIComponent(model)}/plan`;
  const { answer, problem } = useAnswer<Plan>(desk, path, state);
  if (!answer) {
    return <p className="jp-wg-detail">{problem || trans.__('Asking the planner …')}</p>;
  }
  return (
    <>
      <p className="jp-wg-detail">
        {answer.placement
          ? trans.__('Now on %1: %2.', answer.device, answer.placement)
          : trans.__(
              'On %1 it would have room for %2.',
              answer.device,
              amount(answer.room_bytes)
            )}{' '}
        {blocksWords(answer.blocks, trans)} {answer.warning}
      </p>
      <table className="jp-wg-table">
        <thead>
          <tr>
            <th scope="col">{trans.__('from best to slowest')}</th>
            <th scope="col">{trans.__('memory')}</th>
            <th scope="col">{trans.__('a picture')}</th>
          </tr>
        </thead>
        {answer.rungs.map(rung => (
          <tbody key={rung.rung}>
            <tr className={rung.chosen ? 'jp-mod-chosen' : ''}>
              <th scope="row">{rung.words}</th>
              <td className="jp-wg-number">{amount(rung.needed_bytes)}</td>
              <td className="jp-wg-number">
                {SIGNS[rung.basis]}
                {took(rung.expected_s)}
                {answer.blocks === 'compiled' && !rung.compiled && trans.__(' (not compiled)')}
              </td>
            </tr>
            <tr className="jp-wg-why">
              <td colSpan={3}>{rung.why}</td>
            </tr>
          </tbody>
        ))}
      </table>
      {answer.rungs.some(rung => SIGNS[rung.basis]) && (
        <p className="jp-wg-detail">
          {trans.__('≈ reckoned from what was measured otherwise · ? a guess')}
        </p>
      )}
    </>
  );
}
