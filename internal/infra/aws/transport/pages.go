// SPDX-License-Identifier: Apache-2.0

package transport

import "context"

// Pages is a paginator of the AWS SDK. O are the options of its service, and P is a page.
type Pages[O, P any] interface {
	HasMorePages() bool
	NextPage(context.Context, ...func(*O)) (*P, error)
}

// CollectPages returns the items of all pages. After an error it returns none, because a part of a list looks like
// resources that do not exist.
func CollectPages[O, P, T any](ctx context.Context, pages Pages[O, P], itemsOf func(*P) []T) ([]T, error) {
	var out []T
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}

		out = append(out, itemsOf(page)...)
	}

	return out, nil
}
