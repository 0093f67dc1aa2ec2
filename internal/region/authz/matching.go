// SPDX-License-Identifier: Apache-2.0

package authz

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Match is a statement that applies to a request, by its indexes.
type Match struct {
	Policy    int // in the list of policies
	Statement int // in the policy
}

// MatchingStatements returns the statements of policies with an effect that apply to a request: those that allow it, or
// those that deny it.
func MatchingStatements(policies []Policy, allow bool, r Request) []Match {
	c := lowerCaseKeys(r.Context)
	var out []Match
	for i, p := range policies {
		for j, s := range p.Statements {
			if s.Allow == allow && s.matchesRequest(p.Version, r, c) {
				out = append(out, Match{Policy: i, Statement: j})
			}
		}
	}

	return out
}

// ConditionKeys returns the names of the condition keys that the statements of policies have, sorted and in lower case.
func ConditionKeys(policies []Policy) []string {
	var out []string
	for _, p := range policies {
		for _, s := range p.Statements {
			for _, c := range s.Conditions {
				out = append(out, strings.ToLower(c.Key))
			}
		}
	}

	slices.Sort(out)

	return slices.Compact(out)
}

// Position is a place in a document. Both numbers begin with 1.
type Position struct {
	Line   int
	Column int // of the next character
}

// Span is the place of a statement in its document.
type Span struct {
	Start Position
	End   Position
}

// LocateStatements returns the places of the statements of a document, in their order, as IAM's simulator tells them: a
// statement begins where the part before it ends, which is the bracket of the list, or the statement before it. A
// statement without a list begins after its own brace.
func LocateStatements(document string) ([]Span, error) {
	d := json.NewDecoder(strings.NewReader(document))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("locate the statements of a policy: %w", err)
	}

	for d.More() {
		name, err := d.Token()
		if err == nil && name == json.Token("Statement") {
			return locateValues(document, d)
		}

		var other json.RawMessage
		if err == nil {
			err = d.Decode(&other)
		}

		if err != nil {
			return nil, fmt.Errorf("locate the statements of a policy: %w", err)
		}
	}

	return nil, nil
}

// locateValues returns the places of the values that come next: one object, or those of a list.
func locateValues(document string, d *json.Decoder) ([]Span, error) {
	before := d.InputOffset()
	rest := strings.TrimLeft(document[before:], ": \t\r\n")
	if !strings.HasPrefix(rest, "[") {
		var one json.RawMessage
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("locate the statement of a policy: %w", err)
		}

		end := d.InputOffset()
		start := end - int64(len(bytes.TrimSpace(one))) + 1

		return []Span{{Start: positionAt(document, start), End: positionAt(document, end)}}, nil
	}

	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("locate the statements of a policy: %w", err)
	}

	var out []Span
	for start := d.InputOffset(); d.More(); start = d.InputOffset() {
		var next json.RawMessage
		if err := d.Decode(&next); err != nil {
			return nil, fmt.Errorf("locate the statements of a policy: %w", err)
		}

		out = append(out, Span{Start: positionAt(document, start), End: positionAt(document, d.InputOffset())})
	}

	return out, nil
}

// positionAt returns the position after the first bytes of a document.
func positionAt(document string, offset int64) Position {
	before := document[:offset]

	return Position{
		Line:   1 + strings.Count(before, "\n"),
		Column: len(before) - strings.LastIndex(before, "\n"),
	}
}
