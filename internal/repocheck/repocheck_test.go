// SPDX-License-Identifier: Apache-2.0

// Package repocheck reads the repository's own tree and holds it to its habits: licence headers, package docs, file
// length, the direction of dependencies, what a binary may link. It tests no behaviour of the product.
package repocheck_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module   = "github.com/slipway-k8s/slipway"
	maxLines = 400 // style guide, section 5.3 habit 2; blank lines and comments do not count
)

// root is the repository's folder, seen from this package.
const root = "../.."

// goFiles calls f with every Go file of the main module and of the nested ones, by its path from the root.
func goFiles(t *testing.T, f func(path string, src []byte)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		f(rel, src)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLicenceHeaders(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if !bytes.HasPrefix(src, []byte("// SPDX-License-Identifier: Apache-2.0\n")) {
			t.Errorf("%s: begin it with the licence line", path)
		}
	})
}

func TestFileLength(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		n := 0
		for line := range bytes.Lines(src) {
			if s := bytes.TrimSpace(line); len(s) > 0 && !bytes.HasPrefix(s, []byte("//")) {
				n++
			}
		}
		if n > maxLines {
			t.Errorf("%s: %d lines of code; split it by concern at %d", path, n, maxLines)
		}
	})
}

func TestPackageDocs(t *testing.T) {
	documented := map[string]bool{}
	goFiles(t, func(path string, src []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Error(err)
			return
		}
		documented[filepath.Dir(path)] = documented[filepath.Dir(path)] || docOf(file)
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package doc: say what it holds and what it does not know", dir)
		}
	}
}

func docOf(f *ast.File) bool { return f.Doc != nil && len(strings.Fields(f.Doc.Text())) > 5 }

// deps lists what a package of the module links, tests left out.
func deps(t *testing.T, pkg string) []string {
	t.Helper()
	cmd := exec.Command("go", "list", "-deps", pkg)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps %s: %v", pkg, err)
	}
	return strings.Fields(string(out))
}

func TestForbiddenDependencies(t *testing.T) {
	tests := []struct{ pkg, prefix, why string }{
		{"./cmd/slipway-node", module + "/internal/infra/aws", "the agent carries out no provisioning"},
		{"./cmd/slipway-node", module + "/internal/infra/awskind", "the agent carries out no provisioning"},
		{"./cmd/slipway-node", module + "/internal/region", "no part of the product knows the local region"},
		{"./cmd/slipway-node", "github.com/aws/aws-sdk-go/", "the v1 shapes are for the region alone, and huge"},
		{"./cmd/slipway-node", "github.com/google/go-containerregistry/pkg/v1/layout", "images are made on the operator's side"},
		{"./cmd/slipway-node", "github.com/google/go-containerregistry/pkg/v1/google", "the agent reads artifacts, and no keychains"},
		{"./cmd/slipway-node", "github.com/go-git", "the agent has a small client of its own (docs/design/0027-followed-channels.md)"},
		{"./cmd/slipway-node", "helm.sh/helm", "charts are rendered on the operator's side"},
		{"./cmd/slipway-node", "sigs.k8s.io/kustomize", "kustomizations are built on the operator's side"},
		{"./internal/infra/plan", module + "/internal/infra/aws", "the planner is pure"},
		{"./internal/infra/model", module + "/internal/infra/aws", "the model is pure"},
		{"./internal/infra/aws/transport", module + "/internal/infra/aws/driver", "transport knows no resource kind"},
		{"./internal/infra/aws/transport", module + "/internal/infra/awskind", "transport knows no resource kind"},
		{"./internal/infra/aws/transport", module + "/internal/infra/aws/discovery", "transport is the lowest layer"},
		{"./internal/infra/aws/driver", module + "/internal/infra/aws/cleanup", "cleanup explains errors to the drivers through driver.InUseFunc"},
		{"./internal/infra/aws/driver", module + "/internal/infra/aws/discovery", "drivers read only what the cluster owns"},
		{"./internal/infra/aws/cleanup", module + "/internal/infra/aws/discovery", "cleanup and discovery are siblings"},
		{"./internal/infra/aws/discovery", module + "/internal/infra/aws/cleanup", "cleanup and discovery are siblings"},
		{"./internal/infra/model", module + "/internal/machine/node", "siblings are wired by internal/cluster"},
		{"./internal/cluster/...", "github.com/spf13/cobra", "what can be done with a cluster knows no flags"},
		{"./internal/cluster/...", module + "/internal/cli", "what can be done with a cluster knows no command line"},
		{"./internal/infra/graph", "net/http", "the core does no I/O"},
		{"./internal/infra/plan", "net/http", "the core does no I/O"},
		{"./internal/region", module + "/internal/infra/plan", "the region judges the provisioner: it may share no code with it"},
		{"./internal/region", module + "/internal/infra/awskind", "the region judges the provisioner: it may share no code with it"},
		{"./internal/region", module + "/internal/infra/model", "the region judges the provisioner: it may share no code with it"},
		{"./internal/region", module + "/internal/machine/node", "the region judges the provisioner: it may share no code with it"},
	}
	seen := map[string][]string{}
	for _, tt := range tests {
		if seen[tt.pkg] == nil {
			seen[tt.pkg] = deps(t, tt.pkg)
		}
		for _, d := range seen[tt.pkg] {
			if d == tt.prefix || strings.HasPrefix(d, strings.TrimSuffix(tt.prefix, "/")+"/") {
				t.Errorf("%s links %s: %s", tt.pkg, d, tt.why)
			}
		}
	}
}

// TestOnlyCLIKnowsTheRegion holds the decision that no line of the product may know whether it talks to the region or
// to AWS.
func TestOnlyCLIKnowsTheRegion(t *testing.T) {
	goFiles(t, func(path string, src []byte) {
		if strings.HasPrefix(path, "internal/region") || strings.HasPrefix(path, "internal/cli/") || strings.HasPrefix(path, "internal/repocheck") ||
			strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "cmd/slipway/") || strings.HasSuffix(path, "_test.go") {
			return
		}
		if bytes.Contains(src, []byte(`"`+module+"/internal/region")) {
			t.Errorf("%s imports the local region", path)
		}
		if bytes.Contains(src, []byte("198.18.0.1")) && !strings.HasPrefix(path, "internal/lib/asset") && !strings.HasPrefix(path, "assets/") {
			t.Errorf("%s knows the local region's address", path)
		}
	})
}
