// SPDX-License-Identifier: Apache-2.0

package services

import (
	"go/ast"
	"go/types"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// pageMembers are the members by which requests ask for a page.
func pageMembers() []string {
	return []string{
		"ContinuationToken", "KeyMarker", "Limit", "Marker", "MaxItems", "MaxKeys", "MaxParts", "MaxRecords", "MaxResults",
		"MaxUploads", "NextToken", "PageSize", "PartNumberMarker", "StartRecordName", "UploadIdMarker", "VersionIdMarker",
	}
}

// pageTokens are the members of answers that say whether there is another page, and how to ask for it.
func pageTokens() []string {
	return []string{
		"IsTruncated", "Marker", "NextContinuationToken", "NextKeyMarker", "NextMarker", "NextPartNumberMarker",
		"NextRecordName", "NextToken", "NextUploadIdMarker", "NextVersionIdMarker", "Truncated",
	}
}

// withoutPages are the lists that answer with one page, each with the reason.
func withoutPages() map[string]string {
	return map[string]string{}
}

// TestEveryListIsPaged walks over the operations of the region. If an operation has pages in the SDK's model, the region reads every
// member of its request that asks for one, and sets every member of its answer that names the next one.
func TestEveryListIsPaged(t *testing.T) {
	read := map[string]bool{}
	written := map[string]bool{}
	answers := map[string]*types.Struct{}
	inputs := inputsByPackage(t)
	checkPackages(t, func(files []*ast.File, info *types.Info, sdk types.Importer) {
		addReads(read, files, info)
		addWrites(written, files, info)

		for pkg, names := range inputs {
			if imported, err := sdk.Import(pkg); err == nil {
				addAnswers(answers, imported, names)
			}
		}
	})

	lists := 0
	used := map[string]bool{}

	for _, service := range buildServices(t).allServices() {
		for _, op := range service.Operations {
			in := reflect.TypeOf(op.NewInput()).Elem()
			name := path.Base(in.PkgPath()) + "." + op.Name
			missing, members := missingPageMembers(in, answers[name], name, read, written)
			if members > 0 {
				lists++
			}

			switch {
			case len(missing) == 0:
			case withoutPages()[name] != "":
				used[name] = true
			default:
				t.Errorf("%s has pages in AWS, and the region drops %s", name, strings.Join(missing, ", "))
			}
		}
	}

	for name := range withoutPages() {
		if !used[name] {
			t.Errorf("withoutPages: %s has pages, or does not exist", name)
		}
	}

	if lists < 60 {
		t.Errorf("found %d lists: the search in this test is broken", lists)
	}
}

// inputsByPackage returns the names of the region's operations by the path of their package in the SDK.
func inputsByPackage(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, service := range buildServices(t).allServices() {
		for _, op := range service.Operations {
			pkg := reflect.TypeOf(op.NewInput()).Elem().PkgPath()
			found[pkg] = append(found[pkg], op.Name)
		}
	}

	return found
}

// missingPageMembers returns the page members of an operation that the region drops, and the number of those it has.
func missingPageMembers(
	in reflect.Type,
	answer *types.Struct,
	name string,
	read, written map[string]bool,
) (missing []string, members int) {
	pkg, _, _ := strings.Cut(name, ".")
	for f := range in.Fields() {
		if !slices.Contains(pageMembers(), f.Name) {
			continue
		}

		members++
		if !read[pkg+"."+in.Name()+"."+f.Name] {
			missing = append(missing, f.Name)
		}
	}

	if answer == nil {
		return missing, members
	}

	for f := range answer.Fields() {
		if !slices.Contains(pageTokens(), f.Name()) {
			continue
		}

		members++
		if !written[name+"."+f.Name()] {
			missing = append(missing, "the answer's "+f.Name())
		}
	}

	return missing, members
}

// addAnswers adds the answers of operations, by package and operation: they are the results of the methods of the SDK's client.
func addAnswers(answers map[string]*types.Struct, pkg *types.Package, operations []string) {
	for _, name := range pkg.Scope().Names() {
		client, ok := pkg.Scope().Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}

		methods := types.NewMethodSet(types.NewPointer(client.Type()))
		for _, op := range operations {
			if method := methods.Lookup(pkg, op); method != nil {
				if answer := answerOf(method); answer != nil {
					answers[pkg.Name()+"."+op] = answer
				}
			}
		}
	}
}

// answerOf returns the first result of a method of a client, if it is a pointer to a struct.
func answerOf(method *types.Selection) *types.Struct {
	signature, ok := method.Type().(*types.Signature)
	if !ok || signature.Results().Len() != 2 {
		return nil
	}

	pointer, ok := signature.Results().At(0).Type().(*types.Pointer)
	if !ok {
		return nil
	}

	answer, _ := pointer.Elem().Underlying().(*types.Struct)

	return answer
}

// addWrites adds the members that files set, in a literal or by an assignment, by package, operation and member.
func addWrites(written map[string]bool, files []*ast.File, info *types.Info) {
	visit := func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.CompositeLit:
			shape := shapeName(info.TypeOf(x))
			for _, e := range x.Elts {
				pair, ok := e.(*ast.KeyValueExpr)
				if !ok || shape == "" {
					continue
				}

				if key, ok := pair.Key.(*ast.Ident); ok {
					written[shape+"."+key.Name] = true
				}
			}

		case *ast.AssignStmt:
			for _, left := range x.Lhs {
				if selector, ok := left.(*ast.SelectorExpr); ok && info.Selections[selector] != nil {
					written[shapeName(info.Selections[selector].Recv())+"."+selector.Sel.Name] = true
				}
			}
		}

		return true
	}

	for _, f := range files {
		ast.Inspect(f, visit)
	}
}

// shapeName returns the package and the operation of an answer of the SDK, or of a service's own with more members;
// empty for any other type.
func shapeName(t types.Type) string {
	if t == nil {
		return ""
	}

	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}

	named, ok := t.(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}

	from := named.Obj().Pkg().Path()
	if !strings.HasPrefix(from, sdkPath) && !strings.HasPrefix(from, modulePath) {
		return ""
	}

	name := named.Obj().Name()
	name = strings.ToUpper(name[:1]) + name[1:] // a service's own is not exported
	if name == "SimulatePolicyResponse" {       // it is shared by two operations, of which the region has one
		name = "SimulatePrincipalPolicyResponse"
	}

	name, isOutput := strings.CutSuffix(name, "Output")
	name, isResponse := strings.CutSuffix(name, "Response")
	if !isOutput && !isResponse {
		return ""
	}

	return named.Obj().Pkg().Name() + "." + name
}
