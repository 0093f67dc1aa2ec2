// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/lambda"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// The times of an environment. Lambda's limit for the start of a function is 10 s (Lambda developer guide, execution
// environment lifecycle); the others are the region's.
const (
	initTimeout        = 10 * time.Second
	maxIdleTime        = 30 * time.Second
	maxEnvironmentAge  = 30 * time.Minute
	maxResponseBytes   = 6 << 20
	processReleaseTime = time.Second
)

// runtimePath is the path of the version of the runtime API that Lambda has.
const runtimePath = "/2018-06-01/runtime/"

// outcome is how an invocation ended.
type outcome struct {
	payload []byte
	failed  bool // the function returned an error, ended or took too long
}

// newFailure returns the outcome of an invocation that ended without an answer of the function.
func newFailure(kind, message string) outcome {
	return outcome{
		payload: fmt.Appendf(nil, `{"errorType":%q,"errorMessage":%q}`, kind, message),
		failed:  true,
	}
}

// invocation is one event on its way through an environment.
type invocation struct {
	id      string
	payload []byte
	result  chan outcome // has room for one
}

// environment is a process of a function with its runtime API. It serves one invocation at a time.
type environment struct {
	function   string // name
	arn        string
	timeout    time.Duration
	now        func() time.Time
	generation int // of the function when it was started; see environmentPool
	startedAt  time.Time
	idleSince  time.Time
	log        *logWriter

	cmd     *exec.Cmd
	server  *http.Server
	next    chan *invocation // to the runtime, which asks for it
	exited  chan struct{}    // closed when the process has ended
	exitErr error            // set before exited is closed

	mu      sync.Mutex
	current *invocation // that the runtime has taken; nil if none
}

// startEnvironment starts the process of a function.
func (s *Service) startEnvironment(name string, f function) (*environment, error) {
	role := f.Role[lastSlash(f.Role)+1:]
	credentials, err := s.cfg.Roles.IssueRoleCredentials(role, name)
	if err != nil {
		return nil, fmt.Errorf("issue credentials of role %s: %w", role, err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // an address of this computer needs no lookup
	if err != nil {
		return nil, fmt.Errorf("listen for the runtime of function %s: %w", name, err)
	}

	stream := s.cfg.Now().UTC().Format("2006/01/02") + "/[$LATEST]" + sdkshape.RandomHex(s.cfg.Rand, 32)
	e := &environment{
		function:  name,
		arn:       s.functionARN(name),
		timeout:   time.Duration(f.TimeoutS) * time.Second,
		now:       s.cfg.Now,
		startedAt: s.cfg.Now(),
		log:       s.newLogWriter(f.logGroup(name), stream, credentials),
		next:      make(chan *invocation),
		exited:    make(chan struct{}),
	}

	e.server = &http.Server{Handler: e.runtimeAPI(), ReadHeaderTimeout: initTimeout}
	go func() { _ = e.server.Serve(listener) }() // ends when the server is closed

	dir := filepath.Join(s.cfg.Dir, f.CodeDir)
	e.cmd = exec.Command(filepath.Join(dir, bootstrapFile)) //nolint:noctx // it is killed by kill
	e.cmd.Dir = dir
	e.cmd.Env = s.processEnvironment(name, f, processSettings{
		runtimeAPI:  listener.Addr().String(),
		logStream:   stream,
		credentials: credentials,
		root:        dir,
	})
	e.cmd.Stdout = e.log
	e.cmd.Stderr = e.log
	e.cmd.WaitDelay = processReleaseTime
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	return e, e.start()
}

// start starts the process and watches its end.
func (e *environment) start() error {
	if err := e.cmd.Start(); err != nil {
		e.exitErr = err
		close(e.exited)

		return errors.Join(fmt.Errorf("start function %s: %w", e.function, err), e.server.Close())
	}

	go func() {
		e.exitErr = e.cmd.Wait()
		close(e.exited)
		_ = e.server.Close() // nobody asks it any more
	}()

	return nil
}

// kill ends the process and those that it has started, and waits for its end.
func (e *environment) kill() {
	if e.cmd.Process != nil {
		_ = syscall.Kill(-e.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	}

	<-e.exited
}

// isAlive reports whether the process runs.
func (e *environment) isAlive() bool {
	select {
	case <-e.exited:
		return false
	default:
		return true
	}
}

// run gives an event to the function and waits for the answer. The environment cannot be used again unless it is alive.
func (e *environment) run(i *invocation) outcome {
	starting := time.NewTimer(initTimeout)
	defer starting.Stop()

	select {
	case e.next <- i:
	case <-e.exited:
		return e.exitOutcome(i)
	case <-starting.C:
		e.kill()
		return newFailure(
			"Sandbox.Timedout",
			"RequestId: "+i.id+" Error: the function did not ask for an event within "+initTimeout.String(),
		)
	}

	timer := time.NewTimer(e.timeout)
	defer timer.Stop()

	select {
	case o := <-i.result:
		return o
	case <-e.exited:
		return e.exitOutcome(i)
	case <-timer.C:
		e.kill()
		return newFailure(
			"Sandbox.Timedout",
			fmt.Sprintf("RequestId: %s Error: Task timed out after %.2f seconds", i.id, e.timeout.Seconds()),
		)
	}
}

// exitOutcome returns the outcome of an event during which the process ended: it may have reported an error before.
func (e *environment) exitOutcome(i *invocation) outcome {
	select {
	case o := <-i.result:
		return o
	default:
	}

	reason := "exit status 0"
	if e.exitErr != nil {
		reason = e.exitErr.Error()
	}

	return newFailure("Runtime.ExitError", "RequestId: "+i.id+" Error: Runtime exited with error: "+reason)
}

// runtimeAPI returns the handler of Lambda's runtime API (Lambda developer guide, "Using the Lambda runtime API").
func (e *environment) runtimeAPI() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+runtimePath+"invocation/next", e.serveNext)
	mux.HandleFunc("POST "+runtimePath+"invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) {
		e.finish(w, r, false)
	})
	mux.HandleFunc("POST "+runtimePath+"invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) {
		e.finish(w, r, true)
	})
	mux.HandleFunc("POST "+runtimePath+"init/error", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(e.log, io.LimitReader(r.Body, maxResponseBytes)) // the process ends after it
		w.WriteHeader(http.StatusAccepted)
	})

	return mux
}

// serveNext waits for the next event and sends it to the runtime.
func (e *environment) serveNext(w http.ResponseWriter, r *http.Request) {
	var i *invocation
	select {
	case i = <-e.next:
	case <-r.Context().Done():
		return
	case <-e.exited:
		return
	}

	e.mu.Lock()
	e.current = i
	e.mu.Unlock()

	h := w.Header()
	h.Set("Lambda-Runtime-Aws-Request-Id", i.id)
	h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(e.now().Add(e.timeout).UnixMilli(), 10))
	h.Set("Lambda-Runtime-Invoked-Function-Arn", e.arn)
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(i.payload) // an error means that the process has ended
}

// finish takes the answer or the error of the current event.
func (e *environment) finish(w http.ResponseWriter, r *http.Request, failed bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponseBytes+1))
	e.mu.Lock()
	i := e.current
	if i != nil && i.id == r.PathValue("id") {
		e.current = nil
	} else {
		i = nil
	}

	e.mu.Unlock()

	switch {
	case err != nil || i == nil:
		http.Error(w, `{"errorType":"InvalidRequestID","errorMessage":"Invalid request ID"}`, http.StatusBadRequest)
	case len(body) > maxResponseBytes:
		i.result <- newFailure(
			"Function.ResponseSizeTooLarge",
			"Response payload size exceeded maximum allowed payload size (6291456 bytes).",
		)

		w.WriteHeader(http.StatusRequestEntityTooLarge)
	default:
		i.result <- outcome{payload: body, failed: failed}

		w.WriteHeader(http.StatusAccepted)
	}
}

// processSettings are what the process of an environment is told.
type processSettings struct {
	runtimeAPI, logStream, root string
	credentials                 Credentials
}

// processEnvironment returns the environment variables of a function (Lambda developer guide, "Defined runtime
// environment variables"). AWS_ENDPOINT_URL is the region's: its function reaches no other AWS.
func (s *Service) processEnvironment(name string, f function, p processSettings) []string {
	out := []string{
		"AWS_ENDPOINT_URL=" + s.cfg.Endpoint(),
		"PATH=/usr/local/bin:/usr/bin:/bin:/opt/bin",
		"LANG=en_US.UTF-8",
		"TZ=:UTC",
	}

	for _, k := range sdkshape.SortedKeys(f.Environment) {
		out = append(out, k+"="+f.Environment[k])
	}

	return append(
		out,
		"AWS_LAMBDA_RUNTIME_API="+p.runtimeAPI,
		"AWS_REGION="+s.cfg.Region,
		"AWS_DEFAULT_REGION="+s.cfg.Region,
		"AWS_ACCESS_KEY_ID="+p.credentials.AccessKeyID,
		"AWS_SECRET_ACCESS_KEY="+p.credentials.SecretAccessKey,
		"AWS_SESSION_TOKEN="+p.credentials.Token,
		"AWS_LAMBDA_FUNCTION_NAME="+name,
		"AWS_LAMBDA_FUNCTION_VERSION=$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE="+strconv.FormatInt(f.MemoryMB, 10),
		"AWS_LAMBDA_INITIALIZATION_TYPE=on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME="+f.logGroup(name),
		"AWS_LAMBDA_LOG_STREAM_NAME="+p.logStream,
		"LAMBDA_TASK_ROOT="+p.root,
		"LAMBDA_RUNTIME_DIR="+p.root,
		"_HANDLER="+f.Handler,
	)
}

// lambdaEvent is the type of an asynchronous invocation.
const lambdaEvent = sdk.InvocationTypeEvent
