// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bufio"
	"net"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// libraryTexts are parts of messages that come from a library and not from Slipway.
func libraryTexts() []string {
	return []string{
		"strconv.", "accepts at most", "accepts 1 arg", "requires at least", "unknown flag", "unknown shorthand", "unknown command",
		"unmarshal", " yaml: ", " json: ", "invalid character", "dial tcp", "operation error", "StatusCode", "RequestID", "api error",
		"context deadline", "context canceled", "x509", "EOF", "IMDS", "get identity", "Go struct", "time: ", "no such host",
		"goroutine", "panic", "%!", "<nil>", "parse error", "net/http", "required flag(s)", "flags in the group",
	}
}

// plainly runs the command lines of a file. Each has to fail, with a message that says "error:" and contains no text
// of a library.
func plainly(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: plainly FILE")
	}
	bad := 0
	complain := func(line, text, what string) {
		bad++
		ts.Logf("WRONG: slipway %s: %s: %s", line, what, text)
	}
	lines := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[0])))
	for lines.Scan() {
		err := ts.Exec("slipway", strings.Fields(lines.Text())...)
		text := ts.ReadFile("stderr") + ts.ReadFile("stdout")
		if err == nil {
			complain(lines.Text(), text, "succeeded")
		}
		if !strings.Contains(text, "error") {
			complain(lines.Text(), text, "prints no error")
		}
		for _, part := range libraryTexts() {
			if strings.Contains(text, part) {
				complain(lines.Text(), text, "contains "+part)
			}
		}
	}
	if bad > 0 {
		ts.Fatalf("%d messages are not plain: see WRONG", bad)
	}
}

// silent starts a server that accepts connections and never answers, and makes it the endpoint of AWS.
func silent(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	go func() {
		for {
			if _, err := l.Accept(); err != nil {
				return
			}
		}
	}()
	ts.Setenv("AWS_ENDPOINT_URL", "http://"+l.Addr().String())
}
