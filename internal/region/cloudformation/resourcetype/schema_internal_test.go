// SPDX-License-Identifier: Apache-2.0

package resourcetype

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation/template"
	"github.com/slipway-k8s/slipway/test/referencedata"
)

var update = flag.Bool("update", false, "write what is generated anew")

// extra are schemas that the shared data does not have: AWS's documentation of the type.
func extra() map[string]typeSchema {
	return map[string]typeSchema{
		"AWS::AutoScaling::WarmPool": {
			Properties: map[string]string{
				"AutoScalingGroupName": "string", "InstanceReusePolicy": "InstanceReusePolicy", "MaxGroupPreparedCapacity": "integer",
				"MinSize": "integer", "PoolState": "string",
			},
			Required: []string{"AutoScalingGroupName"}, CreateOnly: []string{"AutoScalingGroupName"}, Identifier: []string{"AutoScalingGroupName"},
			Definitions: map[string]nestedSchema{"InstanceReusePolicy": {Properties: map[string]string{"ReuseOnScaleIn": "boolean"}}},
		},
	}
}

// TestSchemas holds the embedded schemas against the data that all our judges share; with -update it writes them.
func TestSchemas(t *testing.T) {
	var doc struct{ Types map[string]typeSchema }
	referencedata.ReadJSON(t, referencedata.CloudFormationTypes, &doc)
	want := extra()
	for kind := range table() {
		s, ok := doc.Types[kind]
		if _, own := want[kind]; own {
			continue
		}
		if !ok {
			t.Errorf("no schema for %s", kind)
			continue
		}
		used := map[string]nestedSchema{}
		reachable(s, s.Properties, used)
		s.Definitions = used
		want[kind] = s
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	if err := e.Encode(want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("types.json", out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(schemaText), "\n"), strings.Split(out.String(), "\n")); diff != "" {
		t.Errorf("types.json is not what the shared data says; run with -update (-have +want):\n%s", diff)
	}
}

// reachable collects the definitions that properties lead to.
func reachable(s typeSchema, props map[string]string, into map[string]nestedSchema) {
	for _, kind := range props {
		for part := range strings.SplitSeq(kind, "|") {
			for strings.HasSuffix(part, ">") {
				_, part, _ = strings.Cut(strings.TrimSuffix(part, ">"), "<")
			}
			if d, ok := s.Definitions[part]; ok {
				if _, seen := into[part]; !seen {
					into[part] = d
					reachable(s, d.Properties, into)
				}
			}
		}
	}
}

func TestDurations(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]time.Duration{
		"": time.Second, "PT5M": 5 * time.Minute, "PT1H30M": 90 * time.Minute, "PT0S": 0, "P1DT1S": 24*time.Hour + time.Second,
		"PT": -1, "P": -1, "5m": -1, "PT5X": -1,
	} {
		got, err := ParseISODuration(in, time.Second)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %v, want %v", in, got, want)
		}
	}
}

func TestConform(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, in, want, wrong string }{
		{"AWS::EC2::Volume", `{"AvailabilityZone":"a","Size":"8","Encrypted":"true"}`, `{"AvailabilityZone":"a","Encrypted":true,"Size":8}`, ""},
		{"AWS::EC2::Volume", `{"Size":[]}`, `{"Size":[]}`, "#/Size: expected type: Number, found: JSONArray"},
		{"AWS::EC2::VPC", `{"CidrBlock":"c","VpcId":"v"}`, `{"CidrBlock":"c","VpcId":"v"}`, "encountered read-only property [VpcId]"},
		{"AWS::EC2::SecurityGroup", `{"GroupDescription":"d","SecurityGroupIngress":[{"Proto":"tcp"}]}`, "", "#/SecurityGroupIngress/0: extraneous key [Proto] is not permitted"},
		{
			"AWS::EC2::LaunchTemplate", `{"LaunchTemplateData":{"BlockDeviceMappings":[{"DeviceName":"/dev/xvda","Ebs":{"VolumeSize":"8"}}]}}`,
			`{"LaunchTemplateData":{"BlockDeviceMappings":[{"DeviceName":"/dev/xvda","Ebs":{"VolumeSize":8}}]}}`, "",
		},
	} {
		var in template.Object
		if err := json.Unmarshal([]byte(c.in), &in); err != nil {
			t.Fatal(err)
		}
		out, wrong := CoerceProperties(c.kind, in)
		b, err := json.Marshal(out)
		if err != nil || c.want != "" && string(b) != c.want {
			t.Errorf("%s %s is %s, want %s", c.kind, c.in, b, c.want)
		}
		if all := strings.Join(wrong, "; "); (all == "") != (c.wrong == "") || !strings.Contains(all, c.wrong) {
			t.Errorf("%s %s: %q, want %q", c.kind, c.in, all, c.wrong)
		}
	}
}
