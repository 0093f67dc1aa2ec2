// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// propertyContexts are a resource's properties before and after a change; nil if CloudFormation does not
// report them.
type propertyContexts struct {
	before, after map[string]any
}

func propertyContextsOf(r types.ResourceChange) propertyContexts {
	return propertyContexts{
		before: propertiesIn(aws.ToString(r.BeforeContext)),
		after:  propertiesIn(aws.ToString(r.AfterContext)),
	}
}

func propertiesIn(context string) map[string]any {
	var c struct{ Properties map[string]any }
	if json.Unmarshal([]byte(context), &c) != nil {
		return nil
	}

	return c.Properties
}

// splitChange replaces a change of a whole property, whose values CloudFormation does not report, by changes
// of those of its parts that differ. It returns nil if the contexts show no difference.
func (x propertyContexts) splitChange(c plan.Change) []plan.Change {
	if x.before == nil || x.after == nil {
		return nil
	}

	after, known := x.after[c.Property]
	if !known && x.before[c.Property] != nil {
		after = plan.Unknown
	}

	var out []plan.Change
	walkDifferences(c.Property, x.before[c.Property], after, func(path string, old, now any) {
		out = append(out, plan.Change{
			Property:          path,
			Old:               old,
			New:               now,
			ForcesReplacement: c.ForcesReplacement,
		})
	})

	return out
}

// walkDifferences calls found for the smallest parts of two values that differ.
func walkDifferences(path string, old, now any, found func(path string, old, now any)) {
	switch a := old.(type) {
	case map[string]any:
		if b, ok := now.(map[string]any); ok {
			both := maps.Clone(a)
			maps.Copy(both, b)
			for _, k := range slices.Sorted(maps.Keys(both)) {
				walkDifferences(path+"."+k, a[k], b[k], found)
			}

			return
		}

	case []any:
		if b, ok := now.([]any); ok && len(a) == len(b) {
			for i := range a {
				walkDifferences(path+"."+strconv.Itoa(i), a[i], b[i], found)
			}

			return
		}
	}

	if !equalJSON(old, now) {
		if s, ok := now.(string); ok {
			now = decodeValue(s)
		}

		found(path, old, now)
	}
}

func equalJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
