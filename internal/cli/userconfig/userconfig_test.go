// SPDX-License-Identifier: Apache-2.0

package userconfig_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cli/userconfig"
)

func TestPath(t *testing.T) {
	for _, test := range []struct {
		env   map[string]string
		want  string
		named bool
	}{
		{map[string]string{"SLIPWAY_CONFIG": "/x.yaml", "HOME": "/h"}, "/x.yaml", true},
		{map[string]string{"XDG_CONFIG_HOME": "/c", "HOME": "/h"}, "/c/slipway/config.yaml", false},
		{map[string]string{"HOME": "/h"}, "/h/.config/slipway/config.yaml", false},
		{nil, "", false},
	} {
		got, named := userconfig.Path(func(k string) string { return test.env[k] })
		if got != test.want || named != test.named {
			t.Errorf("%v: got %s, %v", test.env, got, named)
		}
	}
}

// TestMistakes: each is reported with its place and what to write.
func TestMistakes(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"unknown", "regoin: eu-central-1\n", `c.yaml:1:1: regoin: is not a setting (did you mean region?)`},
		{"flag", "# x\nstate-key: /k\n", `c.yaml:2:1: state-key: is not a setting (did you mean stateKey?)`},
		{"variable", "AWS_PROFILE: x\n", `c.yaml:1:1: AWS_PROFILE: is not a setting (did you mean profile?)`},
		{"secret", "statePassphrase: x\n", `c.yaml:1:1: statePassphrase: is not a setting (set SLIPWAY_STATE_PASSPHRASE: secrets are not read from this file)`},
		{"zone", "state: file:///s\nregion:   eu-central-1a\n", `c.yaml:2:11: region "eu-central-1a": is an availability zone, not a region (write eu-central-1)`},
		{"region", "region: Frankfurt\n", `c.yaml:1:9: region "Frankfurt": is not an AWS region (write it as eu-central-1)`},
		{"output", "output: jsn\n", `c.yaml:1:9: output "jsn": is not an output format (did you mean json?)`},
		{"state", "state: /var/state\n", `c.yaml:1:8: state "/var/state": is not the URL of a state store (use file:///absolute/dir or s3://bucket/prefix)`},
		{"cluster", "cluster: Demo\n", `c.yaml:1:10: cluster "Demo": is not the name of a cluster`},
		{"list", "region: [a]\n", `c.yaml:1:1: region: must be one value (write region: VALUE)`},
		{"tab", "state: file:///s\n\tregion: x\n", `c.yaml:2:1: configuration: has a tab as indentation`},
		{"twice", "region: a-b-1\nregion: a-b-1\n", `c.yaml:2:1: configuration: has the field region twice; first in line 1`},
		{"documents", "region: a-b-1\n---\nregion: a-b-1\n", `c.yaml:2:1: configuration: has several documents (keep one document)`},
		{"no mapping", "- region\n", `c.yaml:1:1: configuration: is not a mapping of fields`},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, findings := userconfig.Parse("c.yaml", []byte(test.text), "/h")
			if len(findings) != 1 || !strings.HasPrefix(findings[0].String(), test.want) {
				t.Errorf("got  %v\nwant %s", findings, test.want)
			}
		})
	}
	if _, findings := userconfig.Parse("c.yaml", []byte("regoin: x\noutput: y\n"), ""); len(findings) != 2 {
		t.Errorf("not every mistake is reported: %v", findings)
	}
	if _, findings := userconfig.Parse("c.yaml", []byte("# nothing\nregion:\n"), ""); len(findings) != 0 {
		t.Errorf("an empty file: %v", findings)
	}
}

// TestPrecedence: a flag goes before a variable, a variable before the file, the file before the default.
func TestPrecedence(t *testing.T) {
	file, findings := userconfig.Parse("c.yaml", []byte("state: file:///file\nstateKey: ~/key\nregion: eu-west-1\nprofile: p\n"), "/h")
	if len(findings) != 0 {
		t.Fatal(findings)
	}
	got := map[string]string{}
	env := map[string]string{"SLIPWAY_STATE": "file:///env", "AWS_DEFAULT_REGION": "eu-west-2", "AWS_ACCESS_KEY_ID": "k"}
	for _, r := range userconfig.Resolve(file, userconfig.Inputs{
		Flag:   func(name string) (string, bool) { return "file:///flag", name == "state" },
		Getenv: func(name string) string { return env[name] },
	}) {
		got[r.Name] = r.Value + " from " + r.Origin
	}
	want := map[string]string{
		"state":      "file:///flag from flag --state",
		"stateOwner": " from default: the account of the caller",
		"stateKey":   "/h/key from c.yaml:2:1",
		"cluster":    " from default",
		"region":     "eu-west-2 from variable AWS_DEFAULT_REGION",
		"profile":    " from none: AWS_ACCESS_KEY_ID is set",
		"output":     " from default: table",
		"assets":     " from default: the built-in catalogue",
		"sshProxy":   " from default: connect without a proxy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v := userconfig.Lookup(file, "SLIPWAY_STATE", func(string) string { return "" }); v != "file:///file" {
		t.Errorf("got %s", v)
	}
	if v := userconfig.Lookup(file, "USER", func(string) string { return "x" }); v != "" {
		t.Errorf("got %s for a variable of no setting", v)
	}
}

// FuzzParse: no file makes the parser panic.
func FuzzParse(f *testing.F) {
	f.Add("state: s3://b\n")
	f.Add("- [")
	f.Fuzz(func(_ *testing.T, text string) { userconfig.Parse("c.yaml", []byte(text), "/h") })
}
