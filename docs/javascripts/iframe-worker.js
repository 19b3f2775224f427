// Search runs in a worker, and browsers start no worker for a page that was opened from a file.
// There this runs the worker's script in a hidden frame of the page instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = "<!doctype html><title>worker</title>"
      this.frame.addEventListener("load", () => this.start(address), { once: true })
      document.body.append(this.frame)
    }

    start(address) {
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const script = inside.document.createElement("script")
      script.src = address
      script.addEventListener("load", () => {
        const waiting = this.waiting
        this.waiting = null
        waiting.forEach(data => this.postMessage(data))
      })
      script.addEventListener("error", () => this.dispatchEvent(new ErrorEvent("error")))
      inside.document.body.append(script)
    }

    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data)
        return
      }
      const inside = this.frame.contentWindow
      inside.dispatchEvent(new inside.MessageEvent("message", { data }))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
