// SPDX-License-Identifier: Apache-2.0

package ssm_test

import (
	"strings"
	"testing"

	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"
)

// TestPutParameterIsStrict compares the region with answers of AWS that moto's tests record.
func TestPutParameterIsStrict(t *testing.T) {
	t.Parallel()
	c := client(t, t.TempDir())

	for name, x := range map[string]struct {
		change func(*awsssm.PutParameterInput)
		want   string
	}{
		"no type":        {func(in *awsssm.PutParameterInput) { in.Type = "" }, "A parameter type is required when you create a parameter."},
		"another type":   {func(in *awsssm.PutParameterInput) { in.Type = "Bogus" }, "Member must satisfy enum value set: [SecureString, StringList, String]"},
		"no value":       {func(in *awsssm.PutParameterInput) { in.Value = new("") }, "Member must have length greater than or equal to 1."},
		"a data type":    {func(in *awsssm.PutParameterInput) { in.DataType = new("Text") }, "(Data type names are all lowercase.)"},
		"aws":            {func(in *awsssm.PutParameterInput) { in.Name = new("aws_x") }, `can't be prefixed with "aws" or "ssm"`},
		"ssm":            {func(in *awsssm.PutParameterInput) { in.Name = new("/SSM/x") }, `can't be prefixed with "ssm"`},
		"reserved":       {func(in *awsssm.PutParameterInput) { in.Name = new("/aws/x") }, "No access to reserved parameter name"},
		"a letter":       {func(in *awsssm.PutParameterInput) { in.Name = new("/a b") }, "3 symbols .-_"},
		"a bare path":    {func(in *awsssm.PutParameterInput) { in.Name = new("a/b/c") }, "fully qualified"},
		"a large value":  {func(in *awsssm.PutParameterInput) { in.Value = new(strings.Repeat("v", 4097)) }, "advanced-parameter tier"},
		"the other tier": {func(in *awsssm.PutParameterInput) { in.Tier = types.ParameterTierAdvanced }, "Tier Advanced"},
		"levels":         {func(in *awsssm.PutParameterInput) { in.Name = new(strings.Repeat("/a", 16)) }, "maximum of 15 levels"},
	} {
		in := &awsssm.PutParameterInput{Name: new("/own/x"), Value: new("v"), Type: types.ParameterTypeString}
		x.change(in)
		if _, err := c.PutParameter(t.Context(), in); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// TestParameterSelectors: a parameter is found by name, by ARN, with a slash in front, and by its version.
func TestParameterSelectors(t *testing.T) {
	t.Parallel()
	c := client(t, t.TempDir())
	for _, name := range []string{"bare", "/slash", "/a/path"} {
		if _, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: &name, Value: new(name), Type: types.ParameterTypeString}); err != nil {
			t.Fatal(err)
		}
	}

	for given, want := range map[string]string{
		"bare":   "bare",
		"slash":  "/slash",
		"/bare":  "bare",
		"bare:1": "bare",
		"arn:aws:ssm:us-east-1:000000000000:parameter/bare":     "bare",
		"arn:aws:ssm:us-east-1:000000000000:parameter/a/path":   "/a/path",
		"arn:aws:ssm:us-east-1:000000000000:parameter/a/path:1": "/a/path",
	} {
		out, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: &given})
		if err != nil || *out.Parameter.Value != want {
			t.Errorf("%s: %+v, %v, want %s", given, out, err, want)
		}
	}

	if _, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: new("bare:2")}); code(err) != "ParameterVersionNotFound" {
		t.Errorf("a version that is not there: %v", err)
	}
}

// TestPathsArePaged: a page of GetParametersByPath has at most ten parameters.
func TestPathsArePaged(t *testing.T) {
	t.Parallel()
	c := client(t, t.TempDir())
	for _, letter := range "abcdefghijkl" {
		name := "/p/" + string(letter)
		if _, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: &name, Value: new("v"), Type: types.ParameterTypeString}); err != nil {
			t.Fatal(err)
		}
	}

	first, err := c.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: new("/p")})
	if err != nil || len(first.Parameters) != 10 {
		t.Fatalf("%+v, %v, want a page of ten", first, err)
	}

	rest, err := c.GetParametersByPath(t.Context(), &awsssm.GetParametersByPathInput{Path: new("/p"), NextToken: first.NextToken})
	if err != nil || len(rest.Parameters) != 2 || rest.NextToken != nil {
		t.Errorf("%+v, %v, want the last two", rest, err)
	}
}

// TestDeleteParameters: a request names up to 10 parameters, each with or without the slash in front, and repeated
// names count once.
func TestDeleteParameters(t *testing.T) {
	t.Parallel()
	c := client(t, t.TempDir())
	for _, name := range []string{"bare", "/slash"} {
		if _, err := c.PutParameter(t.Context(), &awsssm.PutParameterInput{Name: &name, Value: new("v"), Type: types.ParameterTypeString}); err != nil {
			t.Fatal(err)
		}
	}

	read, err := c.GetParameters(t.Context(), &awsssm.GetParametersInput{Names: []string{"bare", "bare", "none", "none"}})
	if err != nil || len(read.Parameters) != 1 || len(read.InvalidParameters) != 1 {
		t.Errorf("repeated names: %+v, %v", read, err)
	}

	_, err = c.GetParameters(t.Context(), &awsssm.GetParametersInput{Names: strings.Split("a,b,c,d,e,f,g,h,i,j,k", ",")})
	if want := "Value '[a, b, c, d, e, f, g, h, i, j, k]' at 'names' failed to satisfy constraint: Member must have length less than or equal to 10."; err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("11 names: %v, want %s", err, want)
	}

	out, err := c.DeleteParameters(t.Context(), &awsssm.DeleteParametersInput{Names: []string{"/bare", "slash", "none"}})
	if err != nil || strings.Join(out.DeletedParameters, " ") != "/bare slash" || strings.Join(out.InvalidParameters, " ") != "none" {
		t.Errorf("deletion: %+v, %v", out, err)
	}

	if _, err := c.GetParameter(t.Context(), &awsssm.GetParameterInput{Name: new("bare")}); code(err) != "ParameterNotFound" {
		t.Errorf("after the deletion: %v", err)
	}
}
