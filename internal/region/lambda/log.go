// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"bytes"
	"context"
	"strings"
	"sync"
)

// logWriter writes the lines of one environment to its log stream. It may be used concurrently.
type logWriter struct {
	append func(lines ...string) // nil if the role may not write logs

	mu   sync.Mutex
	rest []byte // of an incomplete line
}

// newLogWriter returns the writer of a stream. As in Lambda, nothing is written unless the function's role allows it.
func (s *Service) newLogWriter(group, stream string, c Credentials) *logWriter {
	arn := "arn:aws:logs:" + s.cfg.Region + ":" + s.cfg.Account + ":log-group:" + group + ":log-stream:"
	ctx := context.Background() //nolint:forbidigo // no request: the region asks for itself
	for action, resource := range map[string]string{
		"logs:CreateLogStream": arn,
		"logs:PutLogEvents":    arn + stream,
	} {
		if !s.cfg.Roles.MayDo(ctx, c.AccessKeyID, action, resource) {
			return &logWriter{}
		}
	}

	return &logWriter{append: func(lines ...string) { s.cfg.Logs.Append(group, stream, lines...) }}
}

// Write implements io.Writer.
func (w *logWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest = append(w.rest, text...)
	i := bytes.LastIndexByte(w.rest, '\n')
	if i < 0 {
		return len(text), nil
	}

	lines := strings.Split(string(w.rest[:i]), "\n")
	w.rest = bytes.Clone(w.rest[i+1:])
	w.writeLines(lines...)

	return len(text), nil
}

func (w *logWriter) writeLines(lines ...string) {
	if w.append != nil {
		w.append(lines...)
	}
}

// lastSlash returns the index of the last slash of an ARN, or -1.
func lastSlash(arn string) int { return strings.LastIndex(arn, "/") }
