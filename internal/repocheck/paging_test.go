// SPDX-License-Identifier: Apache-2.0

package repocheck_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sdkServices is the path of the AWS SDK's packages of services.
const sdkServices = "github.com/aws/aws-sdk-go-v2/service/"

// onePage are the reviewed calls of lists that read one page on purpose, as FILE FUNCTION OPERATION, each with the reason.
func onePage() map[string]string {
	const (
		newest = "the newest activities are on the first page"
		byID   = "one id or name has one answer"
	)

	return map[string]string{
		"internal/cluster/rollingupdate/detached.go launchFailure DescribeScalingActivities":      newest,
		"internal/cluster/rollingupdate/templates.go read DescribeLaunchTemplateVersions":         "the versions of one template that its groups name; a page has 200",
		"internal/cluster/sshaccess/gather.go findBastion DescribeLoadBalancers":                  byID,
		"internal/cluster/supportbundle/awsfacts.go readActivities DescribeScalingActivities":     newest,
		"internal/cluster/validate/groups.go addScalingFailure DescribeScalingActivities":         newest,
		"internal/infra/aws/cleanup/blockers.go setInstanceOwner DescribeInstances":               byID,
		"internal/infra/aws/cleanup/blockers.go findBalancerOwner DescribeLoadBalancers":          byID,
		"internal/infra/aws/cleanup/blockers.go setNATOwner DescribeNatGateways":                  byID,
		"internal/infra/aws/cleanup/blockers.go listVolumeUsers DescribeVolumes":                  byID,
		"internal/infra/aws/cleanup/blockers.go listTargetGroupUsers DescribeTargetGroups":        byID,
		"internal/infra/aws/discovery/unmanaged.go readUnmanagedNetwork DescribeVpcs":             byID,
		"internal/infra/aws/driver/autoscalinggroup.go readLastFailure DescribeScalingActivities": newest,
		"internal/infra/aws/driver/dnsrecord.go findOtherRecord ListResourceRecordSets":           "begins at the name; a page has 300, and a name has at most 100 record sets",
		"internal/infra/aws/driver/loadbalancer.go DescribeBalancers DescribeLoadBalancers":       "by ARN; a request takes 20, and a page has 400",
		"internal/infra/aws/driver/roledetails.go listRoleDetails GetAccountAuthorizationDetails": "a truncated answer is not used: the roles are read one by one instead",
		"internal/infra/aws/driver/routetable.go deleteRouteTable DescribeRouteTables":            byID,
		"internal/infra/aws/driver/routetable.go findInTable DescribeRouteTables":                 byID,
		"internal/infra/stack/stack.go describeByID DescribeStacks":                               byID,
		"internal/lib/asset/mirror/ecr.go create DescribeRepositories":                            byID,
		"internal/machine/agent/pass_signal.go findLogicalID DescribeAutoScalingGroups":           byID,
		"hack/e2eaws/inventory_network.go removeInternetGateway DescribeInternetGateways":         byID,
	}
}

// TestListsArePaged fails for a call of AWS whose answer may be a part of a list, unless a paginator makes it, its function
// passes the token of the next page on, or one page is known to be enough.
func TestListsArePaged(t *testing.T) {
	paged := pagedOperations(t)
	reviewed := onePage()
	for _, folder := range []string{"internal", "cmd", "hack"} {
		walkProduct(t, folder, func(path string, file *ast.File) {
			for _, call := range listCalls(file, paged) {
				key := path + " " + call
				if _, known := reviewed[key]; !known {
					t.Errorf("%s: reads one page: use the paginator, see transport.CollectPages", key)
				}

				delete(reviewed, key)
			}
		})
	}

	for _, key := range slices.Sorted(maps.Keys(reviewed)) {
		t.Errorf("%s: there is no such call: remove it from the list", key)
	}
}

// walkProduct parses the Go files of a folder, without tests and the local region, which implements AWS.
func walkProduct(t *testing.T, folder string, visit func(path string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}

		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}

		relative = filepath.ToSlash(relative)
		if entry.IsDir() && relative == "internal/region" {
			return filepath.SkipDir
		}

		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}

		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			visit(relative, file)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// pagedOperations returns, by service, the operations of the AWS SDK whose answers have the token of a next page.
func pagedOperations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	modules, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}

	args := []string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}
	for _, m := range regexp.MustCompile(sdkServices+`(\w+) v`).FindAllStringSubmatch(string(modules), -1) {
		args = append(args, sdkServices+m[1])
	}

	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	answer, err := list.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}

	output := regexp.MustCompile(`(?s)type (\w+)Output struct \{(.*?)\n\}`)
	next := regexp.MustCompile(`\n\t(NextToken|NextMarker|IsTruncated|Truncated|NextContinuationToken) `)
	out := map[string]map[string]bool{}
	for line := range strings.Lines(string(answer)) {
		path, folder, _ := strings.Cut(strings.TrimSpace(line), " ")
		service := strings.TrimPrefix(path, sdkServices)
		out[service] = map[string]bool{}
		files, err := filepath.Glob(filepath.Join(folder, "api_op_*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no operations: %v", folder, err)
		}

		for _, name := range files {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}

			if found := output.FindSubmatch(content); found != nil && next.Match(found[2]) {
				out[service][string(found[1])] = true
			}
		}
	}

	return out
}

// listCalls returns the calls of paged operations in functions that do not pass the token of the next page on, as FUNCTION
// OPERATION.
func listCalls(file *ast.File, paged map[string]map[string]bool) []string {
	services := importedServices(file)
	var out []string
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil || len(services) == 0 || passesToken(function) {
			continue
		}

		ast.Inspect(function.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}

			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}

			for _, service := range servicesOf(function, method.Sel.Name, services) {
				if paged[service][method.Sel.Name] {
					out = append(out, function.Name.Name+" "+method.Sel.Name)
					return true
				}
			}

			return true
		})
	}

	return out
}

// importedServices returns the services of AWS that a file imports, by the name of the package in the file.
func importedServices(file *ast.File) map[string]string {
	out := map[string]string{}
	for _, i := range file.Imports {
		service, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), sdkServices)
		if !ok || strings.Contains(service, "/") {
			continue
		}

		name := service
		if i.Name != nil {
			name = i.Name.Name
		}

		out[name] = service
	}

	return out
}

// servicesOf returns the services to which a call of an operation may go: those whose input the function makes, else all
// that the file imports.
func servicesOf(function *ast.FuncDecl, operation string, imported map[string]string) []string {
	var out []string
	ast.Inspect(function, func(n ast.Node) bool {
		input, ok := n.(*ast.SelectorExpr)
		if !ok || input.Sel.Name != operation+"Input" {
			return true
		}

		if name, ok := input.X.(*ast.Ident); ok && imported[name.Name] != "" {
			out = append(out, imported[name.Name])
		}

		return true
	})

	if len(out) == 0 {
		return slices.Sorted(maps.Values(imported))
	}

	return out
}

// passesToken reports whether a function sets the member of an input that names the next page.
func passesToken(function *ast.FuncDecl) bool {
	tokens := []string{"NextToken", "Marker", "ContinuationToken", "StartRecordName"}
	found := false
	ast.Inspect(function.Body, func(n ast.Node) bool {
		assignment, ok := n.(*ast.AssignStmt)
		if !ok {
			return true
		}

		for _, left := range assignment.Lhs {
			member, ok := left.(*ast.SelectorExpr)
			found = found || ok && slices.Contains(tokens, member.Sel.Name)
		}

		return true
	})

	return found
}
