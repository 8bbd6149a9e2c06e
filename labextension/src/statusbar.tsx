import { VDomModel, VDomRenderer } from '@jupyterlab/apputils';
import { TextItem } from '@jupyterlab/statusbar';
import React from 'react';
import type { Desk } from './desk';
import { statusLine } from './view';

/** One line in the status bar; a click opens the panel. */
export class StatusItem extends VDomRenderer<VDomModel> {
  constructor(
    private readonly desk: Desk,
    private readonly open: () => void
  ) {
    super(new VDomModel());
    this.addClass('jp-wg-status');
    desk.stream.changed.connect(this.onChanged, this);
    this.counting = window.setInterval(() => {
      // The waits count down also where nothing else changes.
      if (!document.hidden && desk.stream.room?.waiting.length) {
        this.update();
      }
    }, 1000);
  }

  override dispose(): void {
    window.clearInterval(this.counting);
    super.dispose();
  }

  protected override render(): JSX.Element {
    const { room, link } = this.desk.stream;
    const { trans, isMine } = this.desk;
    const text = room ? statusLine(room, isMine, Date.now() / 1000, trans) : trans.__('GPU …');
    const stale = link === 'lost' ? trans.__(' (no connection)') : '';
    return (
      <button
        type="button"
        onClick={this.open}
        title={trans.__('Open the GPU panel')}
        className={stale ? 'jp-mod-stale' : ''}
      >
        <TextItem source={text + stale} />
      </button>
    );
  }

  private onChanged(): void {
    this.update();
  }

  private readonly counting: number;
}
