import React from 'react';
import type { Trans } from '../format';

interface Props {
  trans: Trans;
}

/** A fault in what it holds is told, and leaves the rest of the page alone. */
export class Guard extends React.Component<React.PropsWithChildren<Props>, { fault: string }> {
  override state = { fault: '' };

  static getDerivedStateFromError(error: Error): { fault: string } {
    return { fault: error.message };
  }

  override render(): React.ReactNode {
    const { fault } = this.state;
    if (!fault) {
      return this.props.children;
    }
    const { trans } = this.props;
    return (
      <div role="alert" className="jp-wg-note jp-mod-error">
        <p>{trans.__('The panel cannot show this (%1). Try again, or reload the page.', fault)}</p>
        <button type="button" className="jp-wg-do" onClick={() => this.setState({ fault: '' })}>
          {trans.__('Try again')}
        </button>
      </div>
    );
  }
}
