// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/plainerror"
)

// encodeJSON returns v as JSON with a line feed at its end. indent is that of one level; empty: one line. Characters that a
// terminal may obey are escaped, such as \u202e, which is the same value: others than the operator have written some of the
// text, and the encoder keeps some of them.
func encodeJSON(v any, indent string) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", indent)
	enc.SetEscapeHTML(false)

	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("print as json: %w", err)
	}

	return escapeControls(out.Bytes()), nil
}

// escapeControls escapes characters in JSON, which has them in strings only. All of them are below U+10000.
func escapeControls(text []byte) []byte {
	if !bytes.ContainsFunc(text, plainerror.IsTerminalControl) {
		return text
	}

	var out strings.Builder
	for _, r := range string(text) {
		if plainerror.IsTerminalControl(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
			continue
		}

		out.WriteRune(r)
	}

	return []byte(out.String())
}

// encodeYAML returns v as YAML. A string with a character that a terminal may obey, some of which YAML's encoder refuses, is
// quoted, and the character is escaped.
func encodeYAML(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("print as yaml: %w", err)
	}

	quoted := yamlQuoter{token: "quoted" + rand.Text()}
	if bytes.ContainsFunc(body, plainerror.IsTerminalControl) {
		if v, err = quoted.replaceStrings(body); err != nil {
			return nil, err
		}
	}

	out, err := yaml.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("print as yaml: %w", err)
	}

	return []byte(strings.NewReplacer(quoted.pairs...).Replace(string(out))), nil
}

// yamlQuoter encodes some strings of a document by itself: those that YAML's encoder does not escape. In the document, a word
// without a meaning in YAML stands for each, and JSON's form of a string is one of YAML's.
type yamlQuoter struct {
	token string   // begins each word, and is in no other string
	pairs []string // the words, each followed by what it stands for
}

// replaceStrings returns a document in JSON as maps, lists and values, with words in the place of strings that are to be
// escaped.
func (q *yamlQuoter) replaceStrings(body []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("print as yaml: %w", err)
	}

	return q.walk(tree)
}

// walk replaces the strings of one value.
func (q *yamlQuoter) walk(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case string:
		return q.replaceString(v)
	case []any:
		for i := range v {
			if v[i], err = q.walk(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if key, err = q.replaceString(key); err != nil {
				return nil, err
			}

			if out[key], err = q.walk(value); err != nil {
				return nil, err
			}
		}

		return out, nil
	}

	return v, nil
}

// replaceString returns a word that stands for text; text itself if no terminal obeys it.
func (q *yamlQuoter) replaceString(text string) (string, error) {
	if !strings.ContainsFunc(text, plainerror.IsTerminalControl) {
		return text, nil
	}

	quoted, err := encodeJSON(text, "")
	if err != nil {
		return "", err
	}

	word := fmt.Sprintf("%sx%dx", q.token, len(q.pairs))
	q.pairs = append(q.pairs, word, strings.TrimSuffix(string(quoted), "\n"))

	return word, nil
}
