// What goes straight to the server's REST API: a kernel that runs a cell reads no messages.

/** The server that this page came from, or null outside of Jupyter's own pages. */
function pageServer() {
  try {
    const config = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    return new URL(config.baseUrl, location.href);
  } catch {
    return null;
  }
}

function cookie(name) {
  const found = document.cookie.split("; ").find((pair) => pair.startsWith(`${name}=`));
  return found ? found.slice(name.length + 1) : "";
}

/** Ask the server to cancel a job; false where that did not work and the kernel must do it. */
export async function cancelByRest(job) {
  const base = pageServer();
  if (!base || !job) return false;
  try {
    const answer = await fetch(new URL(`workshop-gpu/api/jobs/${encodeURIComponent(job)}`, base), {
      method: "DELETE",
      credentials: "same-origin",
      headers: { "X-XSRFToken": cookie("_xsrf") },
    });
    return answer.ok || answer.status === 409; // 409: it was over already
  } catch {
    return false;
  }
}
