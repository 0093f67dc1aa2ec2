// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// rollEvent is an event of slipway rolling-update -o json.
type rollEvent struct {
	Time                 time.Time
	Type, Machine, Node  string
	Group, Slot, Message string
	MemberMissingSeconds float64
}

// rollProcess is a running slipway rolling-update.
type rollProcess struct {
	e      *environment
	cmd    *exec.Cmd
	stderr bytes.Buffer
	done   chan struct{}

	mu   sync.Mutex
	all  []rollEvent
	more chan struct{} // closed and replaced by each event
}

// startRoll starts slipway rolling-update.
func (e *environment) startRoll(args ...string) *rollProcess {
	e.t.Helper()
	p := &rollProcess{e: e, done: make(chan struct{}), more: make(chan struct{})}
	p.cmd = exec.Command(e.slipway, append([]string{"rolling-update", "cluster", clusterName, "-o", "json"}, args...)...)
	p.cmd.Env = os.Environ()
	for k, v := range e.env {
		p.cmd.Env = append(p.cmd.Env, k+"="+v)
	}
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		e.t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var v rollEvent
			if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
				v = rollEvent{Type: "no event", Message: lines.Text()}
			}
			p.mu.Lock()
			p.all = append(p.all, v)
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
		}
	}()
	return p
}

// events returns the events so far.
func (p *rollProcess) events() []rollEvent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]rollEvent(nil), p.all...)
}

// waitFor waits for an event.
func (p *rollProcess) waitFor(kind string, matches func(rollEvent) bool) rollEvent {
	p.e.t.Helper()
	limit := time.After(5 * time.Minute)
	for {
		p.mu.Lock()
		more := p.more
		p.mu.Unlock()
		for _, v := range p.events() {
			if v.Type == kind && matches(v) {
				return v
			}
		}
		select {
		case <-more:
		case <-p.done:
			p.e.t.Fatalf("the update ended before the event %s:\n%s", kind, p.describe())
		case <-limit:
			_ = p.cmd.Process.Kill()
			p.e.t.Fatalf("no event %s:\n%s", kind, p.describe())
		}
	}
}

// signal sends a signal, as Ctrl-C does.
func (p *rollProcess) signal(s syscall.Signal) {
	p.e.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.e.t.Fatal(err)
	}
}

// describe returns the events as lines.
func (p *rollProcess) describe() string {
	var b strings.Builder
	for _, v := range p.events() {
		fmt.Fprintf(&b, "%s %s: %s\n", v.Time.Format("15:04:05"), v.Type, v.Message)
	}
	return b.String()
}

// wait waits for the end of the process. The output is that of its events.
func (p *rollProcess) wait() commandResult {
	p.e.t.Helper()
	timer := time.AfterFunc(12*time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.done
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.e.t.Fatal(err)
	}
	r := commandResult{out: p.describe(), err: p.stderr.String(), code: p.cmd.ProcessState.ExitCode()}
	p.e.t.Logf("slipway %s → %d\n%s%s", strings.Join(p.cmd.Args[1:], " "), r.code, r.out, clipLog(r.err))
	return r
}

// loadClient sends requests to the Service of the Deployment from inside a machine.
type loadClient struct {
	e       *environment
	machine string
	done    chan string
	// requests is the number of requests, and failures are those that failed, once stop has returned.
	requests int
	failures []string
}

// loadScript waits until the Service has reached the machine, and creates a file. Then it sends ten requests a second, each
// with a connection of its own, until another file exists.
const loadScript = `
until [ -e /run/stop-load ] || curl -sf -m 2 -o /dev/null http://%[1]s/hostname; do sleep 0.2; done
touch /run/load-began
exec python3 -u -c '
import http.client, os, time
n = 0
while not os.path.exists("/run/stop-load"):
    begin = time.time()
    n += 1
    try:
        c = http.client.HTTPConnection("%[1]s", 80, timeout=5)
        c.request("GET", "/hostname")
        r = c.getresponse()
        r.read()
        if r.status != 200: raise Exception(r.status)
    except Exception as e:
        print("FAILED", time.strftime("%%H:%%M:%%S"), repr(e), flush=True)
    c.close()
    time.sleep(max(0, 0.1 - (time.time() - begin)))
print("REQUESTS", n)
'`

// startLoad starts a client in a machine, and waits for its first answer.
func (e *environment) startLoad(machine string) *loadClient {
	e.t.Helper()
	e.mustRunInMachine(machine, "rm -f /run/stop-load /run/load-began")
	ip := e.kubectl("get", "service", "load", "-o", "jsonpath={.spec.clusterIP}")
	c := &loadClient{e: e, machine: machine, done: make(chan string, 1)}
	go func() {
		out, err := e.runInMachineFor(15*time.Minute, machine, fmt.Sprintf(loadScript, ip))
		if err != nil {
			out += "\nFAILED " + err.Error()
		}
		c.done <- out
	}()
	e.waitUntil("a client in "+machine+" gets an answer", time.Minute, func() error {
		_, err := e.runInMachineFor(5*time.Second, machine, "test -e /run/load-began")
		return err
	})
	return c
}

// stop ends the client and reads what it printed.
func (c *loadClient) stop() {
	c.e.t.Helper()
	c.e.mustRunInMachine(c.machine, "touch /run/stop-load")
	for line := range strings.Lines(<-c.done) {
		line = strings.TrimSpace(line)
		if _, err := fmt.Sscanf(line, "REQUESTS %d", &c.requests); err != nil && line != "" {
			c.failures = append(c.failures, line)
		}
	}
}

// writeResult is what a writer has done.
type writeResult struct {
	acknowledged []string
	failures     []string
	gap          time.Duration // the longest time without an acknowledged write
}

// apiWriter writes objects through the API's load balancer at a fixed rate, as a program with client-go does.
type apiWriter struct {
	cancel context.CancelFunc
	done   chan writeResult
}

// startWriter starts a writer: five objects a second.
func (e *environment) startWriter() apiWriter {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	if err != nil {
		e.t.Fatal(err)
	}
	config.QPS = 50
	config.Burst = 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := apiWriter{cancel: cancel, done: make(chan writeResult, 1)}
	run := time.Now().Unix()
	go func() {
		var r writeResult
		last := time.Now()
		ticks := time.NewTicker(200 * time.Millisecond)
		defer ticks.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			<-ticks.C
			name := fmt.Sprintf("load-%d-%d", run, n)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"written": "yes"}}}
			limited, stop := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
			_, err := client.CoreV1().ConfigMaps("default").Create(limited, object, metav1.CreateOptions{})
			stop()
			if err != nil {
				r.failures = append(r.failures, fmt.Sprintf("%s write %s: %v", time.Now().Format("15:04:05.0"), name, err))
				continue
			}
			r.acknowledged = append(r.acknowledged, name)
			r.gap = max(r.gap, time.Since(last))
			last = time.Now()
		}
		w.done <- r
	}()
	return w
}

// stop ends the writer.
func (w apiWriter) stop() writeResult {
	w.cancel()
	return <-w.done
}
