// SPDX-License-Identifier: Apache-2.0

package awskind_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

type definition struct {
	Properties map[string]string `json:"properties"`
}

type cfnType struct {
	definition
	CreateOnly  []string              `json:"createOnlyProperties"`
	ReadOnly    []string              `json:"readOnlyProperties"`
	TagProperty string                `json:"tagProperty"`
	Definitions map[string]definition `json:"definitions"`
	Additional  bool                  `json:"additionalProperties"` // the type takes any property
}

// CloudFormation rejects an update of these although its schema does not list them as create-only; EC2 cannot
// change them either.
var fixedThoughUnlisted = []string{
	"AWS::EC2::Volume/AvailabilityZone", "AWS::EC2::Volume/Encrypted", "AWS::EC2::Volume/KmsKeyId",
}

func TestKindsMatchCloudFormation(t *testing.T) {
	var doc struct{ Types map[string]cfnType }
	referencedata.ReadJSON(t, referencedata.CloudFormationTypes, &doc)
	for _, r := range awskind.AllKinds() {
		k := r.Kind()
		typ, ok := doc.Types[k.CloudFormation]
		if !ok {
			t.Errorf("%s: no such type %s", k.Name, k.CloudFormation)
			continue
		}
		for _, f := range graph.Properties(r) {
			if f.Render.CloudFormationOmit && typ.Properties[f.Property] == "" {
				continue // left out of the template
			}
			if typ.Additional && typ.Properties[f.Property] == "" {
				continue
			}
			if typ.Properties[f.Property] == "" {
				t.Errorf("%s has no property %s", k.CloudFormation, f.Property)
			}
			fixed := slices.Contains(typ.CreateOnly, f.Property) || slices.Contains(fixedThoughUnlisted, k.CloudFormation+"/"+f.Property)
			if f.Immutable != fixed {
				t.Errorf("%s.%s: immutable is %v, create-only is %v", k.CloudFormation, f.Property, f.Immutable, fixed)
			}
		}
		for _, key := range k.KeyProperties {
			if typ.Properties[key] == "" {
				t.Errorf("%s: key %s is not a property", k.CloudFormation, key)
			}
		}
		for a := range k.Attributes {
			if !slices.Contains(typ.ReadOnly, a) {
				t.Errorf("%s: attribute %s is not read-only", k.CloudFormation, a)
			}
		}
		checkNested(t, r, typ)
	}
}

func checkNested(t *testing.T, r graph.Resource, typ cfnType) {
	t.Helper()
	omitted := map[string]bool{}
	for _, f := range graph.Properties(r) {
		omitted[f.Property] = f.Render.CloudFormationOmit && typ.Properties[f.Property] == "" // left out of the template
	}
	for _, path := range graph.NestedPaths(r) {
		top, _, _ := strings.Cut(path, "/")
		if omitted[top] || typ.Additional && typ.Properties[top] == "" || strings.HasPrefix(path, "Environment/Variables/") {
			continue // the last are the names of variables
		}
		level := typ.Properties
		for step := range strings.SplitSeq(strings.ReplaceAll(path, "/*", ""), "/") {
			next, ok := level[step]
			if !ok {
				t.Errorf("%s has no property %s", r.Kind().CloudFormation, path)
				break
			}
			next = strings.TrimSuffix(strings.TrimPrefix(next, "array<"), ">")
			level = typ.Definitions[next].Properties
		}
	}
}

type tfType struct {
	Attributes []struct{ Name string } `json:"attributes"`
	Blocks     []struct {
		Name       string
		Attributes []struct{ Name string } `json:"attributes"`
	} `json:"blocks"`
}

func TestKindsMatchTerraform(t *testing.T) {
	var doc struct{ Resources map[string]tfType }
	referencedata.ReadJSON(t, referencedata.TerraformProvider, &doc)
	for _, r := range awskind.AllKinds() {
		k := r.Kind()
		typ, ok := doc.Resources[k.Terraform]
		if !ok {
			t.Errorf("%s: no such resource %s", k.Name, k.Terraform)
			continue
		}
		names := map[string]bool{"-": true}
		for _, a := range typ.Attributes {
			names[a.Name] = true
		}
		for _, b := range typ.Blocks {
			names[b.Name] = true
			for _, a := range b.Attributes {
				names[b.Name+"."+a.Name] = true
			}
		}
		for _, f := range graph.Properties(r) {
			if !names[f.Attribute] {
				t.Errorf("%s has no attribute %s (of %s)", k.Terraform, f.Attribute, f.Property)
			}
		}
		for _, a := range k.Attributes {
			if !names[a] {
				t.Errorf("%s has no attribute %s", k.Terraform, a)
			}
		}
	}
}

func TestImplicitDependenciesAreKinds(t *testing.T) {
	for _, r := range awskind.AllKinds() {
		for _, n := range r.Kind().ImplicitDependencies {
			if _, ok := awskind.KindNamed(n); !ok {
				t.Errorf("%s has the implicit dependency %q, which is not a kind", r.Kind().Name, n)
			}
		}
		for _, n := range append(r.Kind().DeletedWith.Blocks, r.Kind().DeletedWith.Kind) {
			if _, ok := awskind.KindNamed(n); !ok && n != "" {
				t.Errorf("%s is deleted with or blocks %q, which is not a kind", r.Kind().Name, n)
			}
		}
	}
}
