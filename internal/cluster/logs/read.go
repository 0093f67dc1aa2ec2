// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// pollInterval is the pause between two readings of a journal or a console that is followed.
const pollInterval = 2 * time.Second

// ConsoleAPI reads serial consoles. [ec2.Client] implements it.
type ConsoleAPI interface {
	GetConsoleOutput(
		context.Context,
		*ec2.GetConsoleOutputInput,
		...func(*ec2.Options),
	) (*ec2.GetConsoleOutputOutput, error)
}

// Reader reads logs of one cluster.
type Reader struct {
	// Client of the Kubernetes API; nil if it does not answer, which is enough for consoles.
	Client kubernetes.Interface
	// Consoles reads serial consoles.
	Consoles ConsoleAPI
	// Now is the clock.
	Now func() time.Time
}

// Options select lines.
type Options struct {
	// Since is the age of the oldest line; zero: all. A console has no times, so it does not apply there.
	Since time.Duration
	// Tail is the number of lines from the end of each log; zero: all.
	Tail int
	// Follow continues with new lines until the context ends.
	Follow bool
	// Previous reads the containers that ran before the current ones.
	Previous bool
}

// Copy copies the logs of a source to w. If there are several logs, each line begins with the name of its own in
// brackets. The end of the context ends Copy without an error while it follows.
func (r Reader) Copy(ctx context.Context, src Source, opt Options, w io.Writer) error {
	streams, err := r.openStreams(ctx, src, opt)
	if err != nil {
		return err
	}

	out := &lineWriter{w: w}
	errs := make([]error, len(streams))
	var wg sync.WaitGroup

	for i, s := range streams {
		prefix := ""
		if len(streams) > 1 {
			prefix = "[" + s.name + "] "
		}

		copyStream := func() {
			errs[i] = s.copy(ctx, func(line string) error { return out.writeLine(prefix + line) })
		}
		if opt.Follow {
			wg.Go(copyStream)
		} else {
			copyStream() // one after another, so that the output is in order
		}
	}

	wg.Wait()
	if opt.Follow && ctx.Err() != nil {
		return nil //nolint:nilerr // an interrupted -f is no error
	}

	return errors.Join(errs...)
}

// stream is one log.
type stream struct {
	name string
	copy func(ctx context.Context, emit func(line string) error) error
}

// openStreams returns the logs of a source.
func (r Reader) openStreams(ctx context.Context, src Source, opt Options) ([]stream, error) {
	if src.Kind == Pods {
		return r.podStreams(ctx, src, opt)
	}

	var out []stream
	for _, m := range src.Machines {
		read := func(ctx context.Context) ([]string, error) { return r.ReadJournal(ctx, m, src.Component.Units, opt) }
		if src.Kind == Console {
			read = func(ctx context.Context) ([]string, error) { return r.readConsoleLines(ctx, m, opt) }
		}

		out = append(out, stream{name: m.Name(), copy: func(ctx context.Context, emit func(string) error) error {
			return pollLines(ctx, read, opt.Follow, emit)
		}})
	}

	if len(out) == 0 {
		return nil, diag.WithHint(
			fmt.Errorf("no machine with a ready node runs %s", src.Component.Name),
			"read the console of a machine with: slipway logs MACHINE --console",
		)
	}

	return out, nil
}

// podStreams returns the logs of all containers of the pods of a component.
func (r Reader) podStreams(ctx context.Context, src Source, opt Options) ([]stream, error) {
	c := src.Component
	pods, err := r.Client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: c.Selector})
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", c.Name, err)
	}

	var out []stream
	for _, p := range pods.Items {
		on := func(m inventory.Machine) bool { return m.Node == p.Spec.NodeName }
		if len(src.Machines) > 0 && !slices.ContainsFunc(src.Machines, on) {
			continue
		}

		for _, container := range p.Spec.Containers {
			out = append(out, r.containerStream(p, container.Name, opt))
		}
	}

	if len(out) == 0 {
		return nil, diag.WithHint(
			fmt.Errorf("no pod of %s exists on this machine or in the cluster", c.Name),
			"see: slipway validate cluster NAME",
		)
	}

	return out, nil
}

func (r Reader) containerStream(p corev1.Pod, container string, opt Options) stream {
	name := p.Name
	if len(p.Spec.Containers) > 1 {
		name += "/" + container
	}

	return stream{name: name, copy: func(ctx context.Context, emit func(string) error) error {
		body, err := r.openContainer(ctx, Container{Namespace: p.Namespace, Pod: p.Name, Name: container}, opt)
		if err != nil {
			return err
		}

		defer func() { _ = body.Close() }() // it was read to its end

		if err := emitLines(body, emit); err != nil {
			return fmt.Errorf("read the logs of pod %s/%s: %w", p.Namespace, p.Name, err)
		}

		return nil
	}}
}

// Container names a container of a pod.
type Container struct {
	// Namespace and Pod are those of its pod.
	Namespace, Pod string
	// Name of the container.
	Name string
}

func (r Reader) openContainer(ctx context.Context, c Container, opt Options) (io.ReadCloser, error) {
	in := &corev1.PodLogOptions{Container: c.Name, Follow: opt.Follow, Previous: opt.Previous}
	if opt.Since > 0 {
		in.SinceSeconds = new(int64(opt.Since / time.Second))
	}

	if opt.Tail > 0 {
		in.TailLines = new(int64(opt.Tail))
	}

	body, err := r.Client.CoreV1().Pods(c.Namespace).GetLogs(c.Pod, in).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the logs of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}

	return body, nil
}

// ReadContainer returns the log of one container.
func (r Reader) ReadContainer(ctx context.Context, c Container, opt Options) ([]byte, error) {
	body, err := r.openContainer(ctx, c, opt)
	if err != nil {
		return nil, err
	}

	defer func() { _ = body.Close() }() // it was read to its end
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the logs of pod %s/%s: %w", c.Namespace, c.Pod, err)
	}

	return text, nil
}

// emitLines emits the lines of in until its end.
func emitLines(in io.Reader, emit func(string) error) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if err := emit(strings.TrimSuffix(line, "\n")); err != nil {
				return err
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}

// ReadJournal returns lines of a machine's journal: of these units, or of all units of Slipway if there are none.
func (r Reader) ReadJournal(
	ctx context.Context,
	m inventory.Machine,
	units []string,
	opt Options,
) ([]string, error) {
	if len(units) == 0 {
		units = journalUnits(m)
	}

	query := url.Values{"query": units}
	if opt.Tail > 0 {
		query.Set("tailLines", strconv.Itoa(opt.Tail))
	}

	if opt.Since > 0 {
		query.Set("sinceTime", r.Now().Add(-opt.Since).UTC().Format(time.RFC3339))
	}

	uri := "/api/v1/nodes/" + url.PathEscape(m.Node) + "/proxy/logs/?" + query.Encode()
	body, err := r.Client.CoreV1().RESTClient().Get().RequestURI(uri).DoRaw(ctx)
	if err != nil {
		return nil, diag.WithHint(
			fmt.Errorf("read the journal of %s: %w", m.ID, err),
			"read its console with: slipway logs "+m.ID+" --console",
		)
	}

	if isDirectoryListing(body) {
		return nil, diag.WithHint(
			fmt.Errorf("the kubelet of %s does not serve its journal: it was configured by an older slipway", m.ID),
			"replace the machine after an apply, or read its console with: slipway logs "+m.ID+" --console",
		)
	}

	return splitLines(body), nil
}

// isDirectoryListing reports whether a kubelet answered with the files of /var/log. It does so if its option
// enableSystemLogQuery is off.
func isDirectoryListing(body []byte) bool {
	head := bytes.ToLower(body[:min(len(body), 64)])

	return bytes.HasPrefix(head, []byte("<!doctype html>")) || bytes.HasPrefix(head, []byte("<pre>"))
}

// readConsoleLines returns the last lines of a machine's console.
func (r Reader) readConsoleLines(ctx context.Context, m inventory.Machine, opt Options) ([]string, error) {
	text, err := r.ReadConsole(ctx, m)
	lines := splitLines(text)
	if opt.Tail > 0 && !opt.Follow {
		lines = lines[max(0, len(lines)-opt.Tail):]
	}

	return lines, err
}

// ReadConsole returns the serial console of a machine: the last 64 KiB, as EC2 has it.
func (r Reader) ReadConsole(ctx context.Context, m inventory.Machine) ([]byte, error) {
	in := &ec2.GetConsoleOutputInput{InstanceId: &m.ID, Latest: aws.Bool(true)}
	out, err := r.Consoles.GetConsoleOutput(ctx, in)
	if refused, ok := errors.AsType[smithy.APIError](err); ok && refused.ErrorCode() == "UnsupportedOperation" {
		in.Latest = nil // instances that are not of the Nitro system have the output of the last boot only
		out, err = r.Consoles.GetConsoleOutput(ctx, in)
	}

	if err != nil {
		return nil, fmt.Errorf("read the console of %s: %w", m.ID, err)
	}

	text, err := base64.StdEncoding.DecodeString(aws.ToString(out.Output))
	if err != nil {
		return nil, fmt.Errorf("read the console of %s: %w", m.ID, err)
	}

	return text, nil
}

// pollLines emits the lines that read returns; if follow, again and again those that are new. While it follows, a
// reading that fails is repeated.
func pollLines(
	ctx context.Context,
	read func(context.Context) ([]string, error),
	follow bool,
	emit func(string) error,
) error {
	var last []string
	for {
		lines, err := read(ctx)
		if err != nil && (!follow || last == nil) {
			return err
		}

		if err == nil {
			for _, line := range NewLines(last, lines) {
				if err := emit(line); err != nil {
					return err
				}
			}

			last = lines
		}

		if !follow {
			return nil
		}

		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// NewLines returns the lines of now that follow those of before. Both are ends of the same log: lines were added, and
// the first ones may have been cut off. If nothing of before is left, all lines are new.
func NewLines(before, now []string) []string {
	if len(now) >= len(before) && slices.Equal(now[:len(before)], before) {
		return now[len(before):]
	}

	for overlap := min(len(before), len(now)); overlap > 0; overlap-- {
		if slices.Equal(before[len(before)-overlap:], now[:overlap]) {
			return now[overlap:]
		}
	}

	return now
}

func splitLines(text []byte) []string {
	text = bytes.TrimRight(text, "\n")
	if len(text) == 0 {
		return nil
	}

	lines := strings.Split(string(text), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], "\r")
	}

	return lines
}

// lineWriter writes whole lines of several logs.
type lineWriter struct {
	lock sync.Mutex
	w    io.Writer
}

func (l *lineWriter) writeLine(line string) error {
	l.lock.Lock()
	defer l.lock.Unlock()
	_, err := io.WriteString(l.w, plainerror.Printable(line)+"\n")

	return err
}
