// SPDX-License-Identifier: Apache-2.0

package lambda

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// operationPaths returns the operations by method and path. A star stands for a name.
func operationPaths() map[string]string {
	return map[string]string{
		"POST 2015-03-31/functions":                "CreateFunction",
		"GET 2015-03-31/functions":                 "ListFunctions",
		"GET 2015-03-31/functions/*":               "GetFunction",
		"DELETE 2015-03-31/functions/*":            "DeleteFunction",
		"GET 2015-03-31/functions/*/configuration": "GetFunctionConfiguration",
		"PUT 2015-03-31/functions/*/configuration": "UpdateFunctionConfiguration",
		"PUT 2015-03-31/functions/*/code":          "UpdateFunctionCode",
		"POST 2015-03-31/functions/*/policy":       "AddPermission",
		"GET 2015-03-31/functions/*/policy":        "GetPolicy",
		"DELETE 2015-03-31/functions/*/policy/*":   "RemovePermission",
		"POST 2015-03-31/functions/*/invocations":  "Invoke",
		"POST 2017-03-31/tags/*":                   "TagResource",
		"GET 2017-03-31/tags/*":                    "ListTags",
		"DELETE 2017-03-31/tags/*":                 "UntagResource",
	}
}

// parseRoute finds the operation of a request by its method and path.
func parseRoute(r *http.Request) (wire.Route, error) {
	segments := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	path := map[string]string{}

	for at, members := range map[int][]string{2: {"FunctionName", "ARN"}, 4: {"StatementId"}} {
		if at >= len(segments) {
			continue
		}

		text, err := url.PathUnescape(segments[at])
		if err != nil {
			return wire.Route{}, newUnknownOperation(r)
		}

		segments[at] = "*"
		for _, m := range members {
			path[m] = text
		}
	}

	op := operationPaths()[r.Method+" "+strings.Join(segments, "/")]
	if op == "" {
		return wire.Route{}, newUnknownOperation(r)
	}

	return wire.Route{Op: op, Path: path}, nil
}

// newUnknownOperation returns the error for an operation that the region does not implement.
func newUnknownOperation(r *http.Request) error {
	return newErrorf(
		codeUnknownOperation,
		"This region does not implement %s %s",
		r.Method,
		r.URL.Path,
	)
}
