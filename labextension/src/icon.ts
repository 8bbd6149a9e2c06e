import { LabIcon } from '@jupyterlab/ui-components';

/** A graphics card. */
export const gpuIcon = new LabIcon({
  name: 'workshop-gpu:gpu',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M2 4h2v2h17a1 1 0 0 1 1 1v10a1 1 0 0 1-1 1h-9v2H6v-2H4v3H2z M5 8v8h15V8z" fill-rule="evenodd"/>
    <path d="M10 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6zm0 1.6a1.4 1.4 0 1 1 0 2.8 1.4 1.4 0 0 1 0-2.8zM15 9.5h3.5V11H15zM15 13h3.5v1.5H15z" fill-rule="evenodd"/>
  </g>
</svg>`
});
