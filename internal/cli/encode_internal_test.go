// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster/rollingupdate"
)

// allControls are the characters of [hostile] and the others that encoders of JSON or YAML keep as they are.
const allControls = hostile + "\x7f\u0085\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069<&>\n\ttext: '\"\\"

// TestHostileTextInJSONAndYAML: text of machines controls no terminal in -o json and -o yaml either, and programs read what
// the machine has written. Seen to fail: both kept the characters that change the direction of text, JSON the command
// sequences of one character, and YAML failed because of those.
func TestHostileTextInJSONAndYAML(t *testing.T) {
	want := map[string]any{
		"text":      allControls,
		"key\u202e": []any{"list " + allControls, "plain", "quoted0"},
		"nested":    map[string]any{"\u009bkey": "\u2066", "number": 9007199254740993.0, "on": true, "none": nil},
	}

	for format, read := range map[string]func([]byte, any) error{
		formatJSON: json.Unmarshal,
		formatYAML: func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		var out bytes.Buffer
		a := &app{Env: Env{Stdout: &out}}
		if err := a.printValue(format, want); err != nil {
			t.Fatal(err)
		}

		checkHarmless(t, format, out.String())
		got := map[string]any{}
		if err := read(out.Bytes(), &got); err != nil {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is read as another value (-want +got):\n%s", format, diff)
		}
	}
}

// TestHarmlessTextIsNotEscaped: documents without such characters are as their encoders write them, with numbers that are
// exact.
func TestHarmlessTextIsNotEscaped(t *testing.T) {
	value := struct {
		Name  string `json:"name"`
		Count int64  `json:"count"`
	}{"Zürich <東京>", 9007199254740993}

	for format, want := range map[string]string{
		formatJSON: "{\n  \"name\": \"Zürich <東京>\",\n  \"count\": 9007199254740993\n}\n",
		formatYAML: "count: 9007199254740993\nname: Zürich <東京>\n",
	} {
		var out bytes.Buffer
		a := &app{Env: Env{Stdout: &out}}
		if err := a.printValue(format, value); err != nil || out.String() != want {
			t.Errorf("%s: %q, %v", format, out.String(), err)
		}
	}

	value.Name = "\u202e"
	out, err := encodeYAML(value)
	if want := "count: 9007199254740993\nname: \"\\u202e\"\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v", out, err)
	}
}

// TestHostileTextInEvents: the events of a rolling update quote machines too.
func TestHostileTextInEvents(t *testing.T) {
	var out bytes.Buffer
	a := &app{Env: Env{Stdout: &out}}
	roller{app: a, format: formatJSON}.printEvent(rollingupdate.Event{Message: allControls})
	checkHarmless(t, "an event", out.String())

	var read rollingupdate.Event
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || read.Message != allControls || strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%v: %q", err, out.String())
	}
}
