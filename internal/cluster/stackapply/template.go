// SPDX-License-Identifier: Apache-2.0

package stackapply

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/render"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// cfnTemplate is the part of a template that is read here.
type cfnTemplate struct {
	Parameters map[string]struct {
		Default       string
		AllowedValues []string
	}
	Mappings  struct{ Versions cloudformation.Versions }
	Resources map[string]struct {
		Type       string
		Properties struct {
			Tags              json.RawMessage
			TagSpecifications []struct{ Tags json.RawMessage }
		}
	}
}

// parseTemplate parses a template in JSON.
func parseTemplate(body string) (cfnTemplate, error) {
	var t cfnTemplate
	if err := json.Unmarshal([]byte(body), &t); err != nil {
		return t, fmt.Errorf("parse it: %w", err)
	}

	return t, nil
}

// resourceAddresses returns the address of each resource by its logical id: the one in its tags, else the
// one that the logical id was derived from, if that can be told.
func (t cfnTemplate) resourceAddresses(kinds map[string]string) map[string]graph.Addr {
	out := map[string]graph.Addr{}
	for id, r := range t.Resources {
		kind := kinds[r.Type]
		name := strings.ReplaceAll(graph.Snake(strings.TrimPrefix(id, render.CamelCase(kind))), "_", "-")
		if addr := kind + "/" + name; kind != "" && render.CamelCase(addr) == id {
			out[id] = graph.Addr(addr)
		}

		lists := []json.RawMessage{r.Properties.Tags}
		for _, s := range r.Properties.TagSpecifications {
			lists = append(lists, s.Tags)
		}

		for _, l := range lists {
			var tags []struct {
				Key   string
				Value any
			}
			if json.Unmarshal(l, &tags) != nil {
				continue // tags of another form
			}

			for _, tag := range tags {
				if v, ok := tag.Value.(string); ok && tag.Key == awskind.TagAddress {
					out[id] = graph.Addr(v)
				}
			}
		}
	}

	return out
}

// resolveParameters returns the value of each parameter: the given one, else the one that somebody set in
// CloudFormation (if it differs from the default of that time), else the default. Kept are the names of the
// second kind.
func (t cfnTemplate) resolveParameters(
	old cfnTemplate,
	current map[string]string,
	given []string,
) (values map[string]string, kept []string, err error) {
	values = map[string]string{}
	for name, p := range t.Parameters {
		values[name] = p.Default
		was, had := old.Parameters[name]
		v, set := current[name]
		offered := len(p.AllowedValues) == 0 || slices.Contains(p.AllowedValues, v)
		if had && set && offered && v != was.Default && v != p.Default {
			values[name] = v
			kept = append(kept, name)
		}
	}

	for _, g := range given {
		name, value, err := t.parseParameter(g)
		if err != nil {
			return nil, nil, err
		}

		values[name] = value
		kept = slices.DeleteFunc(kept, func(k string) bool { return k == name })
	}

	slices.Sort(kept)

	return values, kept, nil
}

// parseParameter parses NAME=VALUE.
func (t cfnTemplate) parseParameter(given string) (name, value string, err error) {
	name, value, ok := strings.Cut(given, "=")
	p, known := t.Parameters[name]
	if !ok || !known {
		return "", "", diag.WithHint(fmt.Errorf("--parameter %s: the template has no such parameter", given),
			"use NAME=VALUE with one of "+strings.Join(slices.Sorted(maps.Keys(t.Parameters)), ", "))
	}

	if len(p.AllowedValues) > 0 && !slices.Contains(p.AllowedValues, value) {
		return "", "", diag.WithHint(
			fmt.Errorf("--parameter %s: the template does not allow this value", given),
			"use one of "+strings.Join(p.AllowedValues, ", "),
		)
	}

	return name, value, nil
}

// templateHash identifies a template together with its parameters.
func templateHash(body []byte, values map[string]string) string {
	h := sha256.New()
	h.Write(body)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		h.Write([]byte("\n" + k + "=" + values[k]))
	}

	return hex.EncodeToString(h.Sum(nil))[:12]
}
